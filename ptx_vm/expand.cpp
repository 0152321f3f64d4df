#include "ptx_vm/expand.h"

#include <algorithm>
#include <array>
#include <set>

#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr std::array<std::string_view, 2> kBuiltIn{"vprintf",
                                                   "__assertfail"};  // that the machine runs itself
constexpr size_t kMostStatements = 1 << 22;

using Renames = std::unordered_map<std::string_view, std::string_view>;

std::string_view base_of(const Instruction& i) { return i.opcode.substr(0, i.opcode.find('.')); }

bool is_call(const Statement& s) {
  const auto* i = std::get_if<Instruction>(&s);
  return i && base_of(*i) == "call";
}

// call (results), name, (arguments): the two lists may be missing.
struct Call {
  explicit Call(const Instruction& i) {
    size_t at = 0;
    if (!i.operands.empty() && i.operands[0].kind == Operand::Kind::list) results = &i.operands[at++].parts;
    if (at < i.operands.size()) name = i.operands[at++].name;
    if (at < i.operands.size() && i.operands[at].kind == Operand::Kind::list)
      arguments = &i.operands[at++].parts;
    is_complete = at == i.operands.size();  // what follows is the prototype of a call through a pointer
  }
  inline static const std::vector<Operand> kNone{};
  const std::vector<Operand>*results = &kNone, *arguments = &kNone;
  std::string_view name;
  bool is_complete;
};

class Expander {
 public:
  Expander(const Module& module, ExpandedFunction& out) : module_(module), out_(out) {}

  // Copies a body. `caller` is null for the kernel's own; what returns elsewhere goes to the label `end`.
  void expand(const Function& f, Renames first_names, const Instruction* caller, std::string_view end) {
    std::vector<Renames> names{std::move(first_names)};
    open_.push_back(&f);
    for (const Statement& s : f.body) {
      if (const auto* i = std::get_if<Instruction>(&s)) {
        expand(*i, names.back(), caller, end);
        continue;
      }
      if (const auto* v = std::get_if<Variable>(&s)) {
        declare(*v, names.back());
        continue;
      }
      if (const auto* scope = std::get_if<Scope>(&s)) {
        if (*scope == Scope::open)
          names.push_back(names.back());
        else
          names.pop_back();
      }
      put(s);
    }
    open_.pop_back();
  }

 private:
  void put(Statement s) {
    check(out_.function.body.size() < kMostStatements, out_.function.name,
          ": its calls, expanded, are more than ", kMostStatements, " statements");
    out_.function.body.push_back(std::move(s));
  }
  std::string_view fresh(std::string_view name) {
    return out_.names.emplace_back(str(name, '$', out_.names.size()));
  }
  [[noreturn]] void wrong(const Instruction& i, const std::string& what) const {
    fail(str(out_.function.name, ": ", i.opcode, ": ", what, " (PTX line ", i.line,
             i.location < 0 ? "" : ", " + describe_location(module_, i.location, 0), ")"));
  }

  // A variable of this place in the program; of shared memory there is one for all calls.
  void declare(Variable v, Renames& names) {
    if (v.space == "shared") {
      if (!shared_.insert(v.name).second) return;
    } else {
      v.name = names[v.name] = fresh(v.name);
    }
    put(v);
  }

  static void rename(Operand& o, const Renames& names) {
    if (const auto found = names.find(o.name); found != names.end()) o.name = found->second;
    for (Operand& part : o.parts) rename(part, names);
  }

  void expand(Instruction i, const Renames& names, const Instruction* caller, std::string_view end) {
    for (Operand& o : i.operands) rename(o, names);
    i.caller = caller;
    const std::string_view base = base_of(i);
    if (base == "call") return call(i);
    if (caller && base == "ret") {
      i.opcode = "bra";
      i.operands = {label(end)};
    }
    if (caller && i.opcode.starts_with("cvta.param"))
      wrong(i, "the address of a function parameter is not supported");
    put(i);
  }

  static Operand label(std::string_view name) {
    return {.kind = Operand::Kind::name, .name = name, .second = {}, .parts = {}};
  }

  const Function* find(std::string_view name) const {
    const auto found = std::find_if(module_.functions.begin(), module_.functions.end(),
                                    [&](const Function& f) { return f.name == name && f.has_body; });
    return found == module_.functions.end() ? nullptr : &*found;
  }

  void call(const Instruction& i) {
    const Call call(i);
    if (std::find(kBuiltIn.begin(), kBuiltIn.end(), call.name) != kBuiltIn.end()) return put(i);
    if (!call.is_complete || call.name.starts_with('%')) wrong(i, "calls through pointers are not supported");
    const Function* callee = find(call.name);
    if (!callee) wrong(i, str("calls of ", call.name, " are not supported"));
    if (std::find(open_.begin(), open_.end(), callee) != open_.end())
      wrong(i, str(call.name, " calls itself, which is not supported"));
    if (call.arguments->size() != callee->parameters.size() || call.results->size() != callee->results.size())
      wrong(i, str(call.name, " has a different number of parameters"));
    Renames names;
    for (size_t p = 0; p < callee->parameters.size(); ++p)
      names[callee->parameters[p].name] = (*call.arguments)[p].name;
    for (size_t r = 0; r < callee->results.size(); ++r)
      names[callee->results[r].name] = (*call.results)[r].name;
    const std::string_view end = fresh("return");
    put(Scope::open);
    if (!i.guard.empty()) {
      Instruction skip = i;
      skip.opcode = "bra";
      skip.operands = {label(end)};
      skip.guard_negated = !i.guard_negated;
      put(skip);
    }
    expand(*callee, std::move(names), &out_.calls.emplace_back(i), end);
    put(Label{end});
    put(Scope::close);
  }

  const Module& module_;
  ExpandedFunction& out_;
  std::vector<const Function*> open_;  // from the kernel inwards
  std::set<std::string_view> shared_;
};

}  // namespace

std::unique_ptr<ExpandedFunction> expand_calls(const Module& module, const Function& function) {
  if (std::none_of(function.body.begin(), function.body.end(), is_call)) return nullptr;
  auto out = std::make_unique<ExpandedFunction>();
  out->function = function;
  out->function.body.clear();
  Expander(module, *out).expand(function, {}, nullptr, "");
  return out;
}

}  // namespace flatshard::ptx_vm
