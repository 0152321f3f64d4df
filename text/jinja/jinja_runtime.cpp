#include "text/jinja/jinja_runtime.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "runtime/check.h"
#include "runtime/utf8.h"
#include "text/jinja/jinja_operations.h"
#include "text/jinja/jinja_print.h"

namespace flatshard {
namespace {

// The loop that encloses a statement.
struct JinjaLoop {
  const JinjaValue::Items& items;
  size_t at;

  JinjaValue member(const std::string& name) const {
    const auto count = std::ssize(items), index = static_cast<int64_t>(at);
    if (name == "index") return index + 1;
    if (name == "index0") return index;
    if (name == "revindex") return count - index;
    if (name == "revindex0") return count - index - 1;
    if (name == "first") return at == 0;
    if (name == "last") return at + 1 == items.size();
    if (name == "length") return int64_t{count};
    if (name == "previtem" && at > 0) return items[at - 1];
    if (name == "nextitem" && at + 1 < items.size()) return items[at + 1];
    if (name == "previtem" || name == "nextitem")
      return JinjaValue::undefined("loop has no " + name + " here");
    fail("loop." + name + " is not supported");
  }
};

}  // namespace

// The variables of a statement's body.
struct JinjaScope {
  std::shared_ptr<JinjaScope> parent;
  std::map<std::string, JinjaValue> values;
  const JinjaLoop* loop = nullptr;  // set if this is the scope of a loop's body
};

namespace {

// Shortens a message, into which a template may put a text of any length.
std::string shortened(const std::string& message) {
  constexpr size_t kMostBytes = 2000;
  if (message.size() <= kMostBytes) return message;
  const size_t end = valid_utf8_prefix(std::string_view(message).substr(0, kMostBytes));
  return str(message.substr(0, end), "... (", message.size(), " bytes)");
}

class Runtime {
 public:
  Runtime(const std::string& name, const std::map<std::string, JinjaValue>& variables,
          const JinjaSettings& settings)
      : name_(name), settings_(settings), scope_(std::make_shared<JinjaScope>()) {
    for (const std::string& global : jinja_global_names())
      scope_->values[global] = std::make_shared<const JinjaFunction>(JinjaFunction{global, nullptr, {}});
    for (const auto& [variable, value] : variables) scope_->values[variable] = value;
  }

  SourcedText run(const JinjaNode& body) {
    try {
      check(execute(body) == Flow::next, "{% break %} and {% continue %} must be inside a loop");
    } catch (const Error& error) {
      throw Error(str(name_, ':', line_, ": ", shortened(error.what())), error.where);
    }
    return std::move(out_);
  }

 private:
  enum class Flow { next, broken, continued };
  using Kind = JinjaNodeKind;
  using Scope = std::shared_ptr<JinjaScope>;

  // Counts a node that is executed, and bounds the recursion.
  class Step {
   public:
    Step(Runtime& runtime, const JinjaNode& node) : runtime_(runtime) {
      runtime.line_ = node.line;
      runtime.charge(1);
      const int most = runtime.settings_.limits.depth;
      check(runtime.depth_ < most, "statements and macros are nested more than ", most, " levels deep");
      ++runtime.depth_;
    }
    ~Step() { --runtime_.depth_; }
    Step(const Step&) = delete;
    Step& operator=(const Step&) = delete;

   private:
    Runtime& runtime_;
  };

  void charge(size_t steps) {
    steps_ += static_cast<int64_t>(steps);
    check(steps_ <= settings_.limits.steps, "the template needs more than ", settings_.limits.steps,
          " steps");
  }
  // Charges for a value that the operation at the node reads.
  const JinjaValue& charged(const JinjaNode& node, const JinjaValue& value) {
    line_ = node.line;
    charge(value.weight());
    return value;
  }

  // Charges for a value that the operation makes.
  JinjaValue produced(JinjaValue value) {
    charge(value.weight());
    return value;
  }

  // Runs the work in a new scope inside `parent`.
  template <class Work>
  auto in_scope(const Scope& parent, Work&& work) {
    struct Restore {
      Runtime& runtime;
      Scope before;
      ~Restore() { runtime.scope_ = std::move(before); }
    } const restore{*this, scope_};
    scope_ = std::make_shared<JinjaScope>(JinjaScope{parent, {}, nullptr});
    return work();
  }

  // Returns the text that statements print in a new scope inside `parent`.
  template <class Prepare>
  SourcedText captured(const Scope& parent, const JinjaNode& body, Prepare&& prepare) {
    SourcedText outer = std::exchange(out_, {});
    in_scope(parent, [&] {
      prepare();
      return execute(body);
    });
    return std::exchange(out_, std::move(outer));
  }
  SourcedText captured(const JinjaNode& body) {
    return captured(scope_, body, [] {});
  }

  // --- statements ---

  Flow execute(const JinjaNode& node) {
    const Step step(*this, node);
    switch (node.kind) {
      case Kind::body:
        for (const auto& statement : node.children)
          if (const Flow flow = execute(*statement); flow != Flow::next) return flow;
        return Flow::next;
      case Kind::data:
        out_.append(charged(node, node.value).text());
        return Flow::next;
      case Kind::output:
        out_.append(jinja_str(charged(node, evaluate(node.child(0)))));
        return Flow::next;
      case Kind::if_else:
        return execute_if(node);
      case Kind::for_in:
        return execute_for(node);
      case Kind::set:
        assign(node.child(0), evaluate(node.child(1)));
        return Flow::next;
      case Kind::set_block:
        assign(node.child(0), filtered(node.optional_child(1), captured(node.child(2))));
        return Flow::next;
      case Kind::macro:
        scope_->values[node.name] = function(node);
        return Flow::next;
      case Kind::call_block:
        out_.append(jinja_str(call(node.child(1), &node)));
        return Flow::next;
      case Kind::filter_block:
        out_.append(jinja_str(filtered(&node.child(0), captured(node.child(1)))));
        return Flow::next;
      case Kind::generation: {
        SourcedText text = captured(node.child(0));
        text.mark_generated();
        out_.append(text);
        return Flow::next;
      }
      case Kind::loop_break:
        return Flow::broken;
      case Kind::loop_continue:
        return Flow::continued;
      default:
        fail(str("the statement {% ", node.name, " %} is not supported"));
    }
  }

  Flow execute_if(const JinjaNode& node) {
    size_t i = 0;
    for (; i + 1 < node.children.size(); i += 2)
      if (evaluate(node.child(i)).truth()) return execute(node.child(i + 1));
    return i < node.children.size() ? execute(node.child(i)) : Flow::next;
  }

  Flow execute_for(const JinjaNode& node) {
    const JinjaValue iterable = evaluate(node.child(1));
    check(node.name.empty(), "a recursive loop is not supported");
    JinjaValue::Items items = charged(node, iterable).items();
    if (const JinjaNode* filter = node.optional_child(2)) {
      std::erase_if(items, [&](const JinjaValue& item) {
        return in_scope(scope_, [&] {
          assign(node.child(0), item);
          return !evaluate(*filter).truth();
        });
      });
    }
    for (JinjaLoop loop{items, 0}; loop.at < items.size(); ++loop.at) {
      const Flow flow = in_scope(scope_, [&] {
        scope_->loop = &loop;
        assign(node.child(0), items[loop.at]);
        return execute(node.child(3));
      });
      if (flow == Flow::broken) break;
    }
    if (const JinjaNode* otherwise = items.empty() ? node.optional_child(4) : nullptr)
      return in_scope(scope_, [&] { return execute(*otherwise); });
    return Flow::next;
  }

  void assign(const JinjaNode& target, const JinjaValue& value) {
    line_ = target.line;
    if (target.kind == Kind::name) {
      scope_->values[target.name] = value;
    } else if (target.kind == Kind::attribute) {
      const JinjaValue names = evaluate(target.child(0));
      check(names.is(JinjaKind::name_space), "a member of a value of type ", names.type(), " cannot be set");
      names.name_space().values[target.name] = value;
    } else {
      value.check_defined();
      const JinjaValue::Items items = charged(target, value).items();
      check(items.size() == target.children.size(), items.size(), " values cannot be unpacked into ",
            target.children.size(), " names");
      for (size_t i = 0; i < items.size(); ++i) assign(target.child(i), items[i]);
    }
  }

  // --- expressions ---

  JinjaValue evaluate(const JinjaNode& node) {
    const Step step(*this, node);
    switch (node.kind) {
      case Kind::literal:
        return node.value;
      case Kind::name:
        return variable(node.name);
      case Kind::list:
        return JinjaValue::list(evaluate_all(node));
      case Kind::tuple:
        return JinjaValue::tuple(evaluate_all(node));
      case Kind::dict: {
        const JinjaValue::Items values = evaluate_all(node);
        JinjaValue::Pairs pairs;
        for (size_t i = 0; i < values.size(); i += 2) pairs.emplace_back(values[i], values[i + 1]);
        return JinjaValue::dict(pairs);
      }
      case Kind::attribute: {
        if (const JinjaLoop* loop = loop_of(node.child(0))) return loop->member(node.name);
        const JinjaValue object = evaluate(node.child(0));
        line_ = node.line;
        return jinja_attribute(object, node.name);
      }
      case Kind::item:
        return item(node);
      case Kind::call:
        return call(node, nullptr);
      case Kind::filter:
        return filtered(&node, {});
      case Kind::test: {
        const JinjaValue subject = evaluate(node.child(0));
        const JinjaArguments given = arguments(node, 1);
        charged(node, subject);
        return jinja_test(node.name, subject, given);
      }
      case Kind::unary: {
        const JinjaValue operand = evaluate(node.child(0));
        if (node.name == "not") return !operand.truth();
        if (node.name == "-" && operand.is(JinjaKind::number)) return -operand.number();
        return jinja_binary(node.name, int64_t{0}, operand);
      }
      case Kind::binary:
        return binary(node);
      case Kind::comparison:
        return compare(node);
      case Kind::concat: {
        SourcedText text;
        for (const auto& operand : node.children) text.append(jinja_str(charged(node, evaluate(*operand))));
        return text;
      }
      case Kind::conditional:
        if (evaluate(node.child(0)).truth()) return evaluate(node.child(1));
        if (const JinjaNode* otherwise = node.optional_child(2)) return evaluate(*otherwise);
        return JinjaValue::undefined("the condition is false and there is no else");
      default:
        fail("this expression is not supported here");
    }
  }

  JinjaValue::Items evaluate_all(const JinjaNode& node) {
    JinjaValue::Items values;
    for (const auto& child : node.children) values.push_back(evaluate(*child));
    return values;
  }

  JinjaValue variable(const std::string& name) const {
    for (const JinjaScope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get())
      if (const auto found = scope->values.find(name); found != scope->values.end()) return found->second;
    return JinjaValue::undefined(str("'", name, "' is undefined"));
  }

  // Returns the innermost loop if the node is the variable `loop`.
  const JinjaLoop* loop_of(const JinjaNode& node) const {
    if (node.kind != Kind::name || node.name != "loop") return nullptr;
    for (const JinjaScope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get())
      if (scope->loop != nullptr || scope->values.contains("loop")) return scope->loop;
    return nullptr;
  }

  JinjaValue item(const JinjaNode& node) {
    const JinjaValue object = evaluate(node.child(0));
    const JinjaNode& index = node.child(1);
    if (index.kind != Kind::slice) {
      const JinjaValue at = evaluate(index);
      return jinja_item(object.is(JinjaKind::text) ? charged(node, object) : object, at);
    }
    const auto bound = [&](size_t i) -> std::optional<int64_t> {
      const JinjaNode* part = index.optional_child(i);
      const JinjaValue value = part == nullptr ? JinjaValue() : evaluate(*part);
      if (value.is(JinjaKind::none)) return {};
      return value.integer();
    };
    const auto begin = bound(0), end = bound(1), step = bound(2);
    return produced(jinja_slice(charged(node, object), begin, end, step));
  }

  JinjaValue binary(const JinjaNode& node) {
    const JinjaValue left = evaluate(node.child(0));
    if (node.name == "and") return left.truth() ? evaluate(node.child(1)) : left;
    if (node.name == "or") return left.truth() ? left : evaluate(node.child(1));
    const JinjaValue right = evaluate(node.child(1));
    return produced(jinja_binary(node.name, charged(node, left), charged(node, right)));
  }

  bool compare(const JinjaNode& node) {
    JinjaValue left = evaluate(node.child(0));
    for (size_t i = 1; i < node.children.size(); i += 2) {
      JinjaValue right = evaluate(node.child(i + 1));
      if (!jinja_compare(node.child(i).name, charged(node, left), charged(node, right))) return false;
      left = std::move(right);
    }
    return true;
  }

  // Applies the filters of a node to its own subject, or, in the tag of a block, to `text`.
  JinjaValue filtered(const JinjaNode* node, SourcedText text) {
    if (node == nullptr) return text;
    const JinjaNode* inner = node->optional_child(0);
    const bool is_chain = inner == nullptr || inner->kind == Kind::filter;
    const JinjaValue subject = is_chain ? filtered(inner, std::move(text)) : evaluate(*inner);
    const JinjaArguments given = arguments(*node, 1);
    charged(*node, subject);
    return produced(jinja_filter(node->name, subject, given));
  }

  JinjaArguments arguments(const JinjaNode& node, size_t first) {
    JinjaArguments given;
    for (size_t i = first; i < node.children.size(); ++i) {
      const JinjaNode& child = node.child(i);
      const bool is_special =
          child.kind == Kind::keyword || child.kind == Kind::star || child.kind == Kind::double_star;
      const JinjaValue value = evaluate(is_special ? child.child(0) : child);
      charged(node, value);
      if (child.kind == Kind::keyword)
        given.named.emplace_back(SourcedText(child.name), value);
      else if (child.kind == Kind::double_star)
        for (const auto& [key, member] : value.dict().pairs) given.named.emplace_back(key.text(), member);
      else if (child.kind == Kind::star)
        for (const JinjaValue& item : value.items()) given.positional.push_back(item);
      else
        given.positional.push_back(value);
    }
    return given;
  }

  // `block` is the {% call %} block that the function may use as caller(), or null.
  JinjaValue call(const JinjaNode& node, const JinjaNode* block) {
    const JinjaNode& callee = node.child(0);
    JinjaValue object;
    const bool is_member = callee.kind == Kind::attribute && loop_of(callee.child(0)) == nullptr;
    if (is_member) object = evaluate(callee.child(0));
    line_ = node.line;
    if (is_member && has_jinja_method(object, callee.name)) {
      const JinjaArguments given = arguments(node, 1);
      return produced(jinja_method(callee.name, charged(node, object), given));
    }
    const JinjaValue called = is_member ? jinja_attribute(object, callee.name) : evaluate(callee);
    JinjaArguments given = arguments(node, 1);
    if (block != nullptr) given.named.emplace_back(SourcedText("caller"), function(*block));
    line_ = node.line;
    called.check_defined();
    check(called.is(JinjaKind::function), "a value of type ", called.type(), " cannot be called");
    const JinjaFunction& function = called.function();
    if (function.macro != nullptr) return produced(call_macro(function, given));
    if (function.name == "namespace") return new_namespace(given);
    return produced(jinja_global(function.name, given, settings_.date));
  }

  JinjaValue function(const JinjaNode& node) {
    return std::make_shared<const JinjaFunction>(JinjaFunction{node.name, &node, scope_});
  }

  JinjaValue new_namespace(const JinjaArguments& given) {
    charge(100);  // a namespace is kept until the end
    JinjaNamespace& names = namespaces_.emplace_back();
    for (const JinjaValue& initial : given.positional)
      for (const auto& [key, value] : initial.dict().pairs) names.values[key.bytes()] = value;
    for (const auto& [name, value] : given.named) names.values[name.bytes()] = value;
    return &names;
  }

  JinjaValue call_macro(const JinjaFunction& function, const JinjaArguments& given) {
    const Scope scope = function.scope.lock();
    check(scope != nullptr, "the macro ", function.name, " is called outside the block that defines it");
    const JinjaNode& macro = *function.macro;
    return captured(scope, *macro.children.back(), [&] { bind_parameters(function, macro.child(0), given); });
  }

  void bind_parameters(const JinjaFunction& function, const JinjaNode& signature,
                       const JinjaArguments& given) {
    const auto& parameters = signature.children;
    check(given.positional.size() <= parameters.size(), "the macro ", function.name, " takes at most ",
          parameters.size(), " arguments, is given ", given.positional.size());
    auto& values = scope_->values;
    for (size_t i = 0; i < given.positional.size(); ++i) values[parameters[i]->name] = given.positional[i];
    for (const auto& [sourced, value] : given.named) {
      const std::string& name = sourced.bytes();
      const bool is_known = name == "caller" || std::any_of(parameters.begin(), parameters.end(),
                                                            [&](const auto& p) { return p->name == name; });
      check(is_known, "the macro ", function.name, " has no parameter '", name, "'");
      check(values.emplace(name, value).second, "the macro ", function.name, " is given '", name, "' twice");
    }
    for (const auto& parameter : parameters) {
      if (values.contains(parameter->name)) continue;
      const JinjaNode* otherwise = parameter->optional_child(0);
      JinjaValue value =
          otherwise != nullptr
              ? evaluate(*otherwise)
              : JinjaValue::undefined(str("the parameter '", parameter->name, "' was not given"));
      values[parameter->name] = std::move(value);
    }
  }

  const std::string& name_;
  const JinjaSettings& settings_;
  Scope scope_;
  SourcedText out_;
  std::deque<JinjaNamespace> namespaces_;
  int line_ = 1, depth_ = 0;
  int64_t steps_ = 0;
};

}  // namespace

SourcedText run_jinja(const JinjaNode& body, const std::string& name,
                      const std::map<std::string, JinjaValue>& variables, const JinjaSettings& settings) {
  return Runtime(name, variables, settings).run(body);
}

}  // namespace flatshard
