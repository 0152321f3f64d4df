#include <algorithm>
#include <charconv>
#include <map>
#include <tuple>

#include "ptx_vm/lexer.h"
#include "ptx_vm/syntax.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

class Parser {
 public:
  explicit Parser(Module& module) : module_(module), tokens_(tokens_of(module.text)) {}

  void parse_module() {
    while (here().kind != Token::Kind::end) parse_top_level();
  }

 private:
  const Token& here(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is(std::string_view text) const { return here().kind != Token::Kind::string && here().text == text; }
  bool accept(std::string_view text) {
    if (!is(text)) return false;
    take();
    return true;
  }
  void expect(std::string_view text) {
    if (!accept(text)) wrong(str("expected ", text));
  }
  [[noreturn]] void wrong(const std::string& what) const {
    fail(str("PTX line ", here().line, ": ", what, ", found '", here().text, "'"));
  }
  void skip_line() {
    for (const int line = here().line; here().line == line && here().kind != Token::Kind::end;) take();
  }

  uint64_t integer() {
    const bool negative = accept("-");
    std::string_view text = here().text;
    int base = 10;
    if (text.starts_with("0x") || text.starts_with("0X"))
      base = 16, text.remove_prefix(2);
    else if (text.starts_with("0b"))
      base = 2, text.remove_prefix(2);
    if (text.ends_with('U')) text.remove_suffix(1);
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size()) wrong("expected an integer");
    take();
    return negative ? -value : value;
  }

  void parse_top_level() {
    const std::string_view word = here().text;
    if (word == ".target") {
      take();
      module_.target = here().text;
      skip_line();
    } else if (word == ".version" || word == ".address_size") {
      skip_line();
    } else if (word == ".file") {
      parse_file();
    } else if (word == ".section") {
      skip_section();
    } else {
      parse_declaration();
    }
  }

  void parse_file() {
    take();
    const int index = static_cast<int>(integer());
    module_.files[index] = here().text;
    skip_line();
  }

  void skip_section() {
    while (!is("{")) take();
    while (!is("}")) take();
    take();
  }

  void parse_declaration() {
    bool is_external = false;
    while (is(".visible") || is(".weak") || is(".extern") || is(".common"))
      is_external |= take().text == ".extern";
    if (is(".entry") || is(".func")) return parse_function();
    for (const std::string_view space : {"global", "const", "shared"})
      if (accept(str(".", space))) {
        module_.variables.push_back(parse_variable(space));
        module_.variables.back().is_external = is_external;
        return expect(";");
      }
    wrong("unknown directive");
  }

  // What follows the state space: .align 4 .b8 name[8] = {1, 2}
  Variable parse_variable(std::string_view space) {
    Variable v{.space = space};
    if (accept(".align")) v.align = integer();
    accept(".ptr");
    v.type = here().text;
    if (!v.type.starts_with('.') || bytes_of_type(v.type.substr(1)) == 0) wrong("expected a type");
    v.type.remove_prefix(1);
    take();
    const uint64_t size = bytes_of_type(v.type);
    v.align = std::max(v.align, size);
    v.name = take().text;
    uint64_t count = 1;
    while (accept("[")) {
      count *= is("]") ? 0 : integer();
      expect("]");
    }
    v.bytes = count * size;
    if (accept("=")) {
      if (accept("{")) {
        do v.initial.push_back(literal().bits);
        while (accept(","));
        expect("}");
      } else {
        v.initial.push_back(literal().bits);
      }
    }
    return v;
  }

  std::vector<Variable> parse_parameters() {
    std::vector<Variable> all;
    if (!accept("(")) return all;
    while (!accept(")")) {
      if (accept(".reg")) wrong("register parameters are not supported");
      expect(".param");
      all.push_back(parse_variable("param"));
      accept(",");
    }
    return all;
  }

  void parse_function() {
    Function f;
    f.is_entry = take().text == ".entry";
    if (!f.is_entry) f.results = parse_parameters();
    f.name = take().text;
    f.parameters = parse_parameters();
    while (!is("{") && !is(";")) {
      if (is(".maxntid") || is(".reqntid")) {
        take();
        f.max_threads = static_cast<uint32_t>(integer());
        while (accept(",")) f.max_threads *= static_cast<uint32_t>(integer());
      } else if (accept(".reqnctapercluster")) {
        f.cluster = {static_cast<uint32_t>(integer()), 1, 1};
        for (size_t i = 1; accept(","); ++i) f.cluster.at(i) = static_cast<uint32_t>(integer());
      } else if (accept(".explicitcluster")) {
      } else if (accept(".minnctapersm")) {
        f.blocks_per_processor = static_cast<uint32_t>(integer());
      } else if (is(".maxnreg") || is(".maxclusterrank") || is(".noreturn")) {
        if (take().text != ".noreturn") integer();
      } else {
        wrong("unknown function directive");
      }
    }
    if (!accept(";")) {
      f.has_body = true;
      location_ = -1;
      parse_body(f);
    }
    module_.functions.push_back(std::move(f));
  }

  void parse_body(Function& f) {
    int depth = 0;
    do {
      if (accept("{")) {
        if (depth++) f.body.emplace_back(Scope::open);
      } else if (accept("}")) {
        if (--depth) f.body.emplace_back(Scope::close);
      } else if (is(".loc")) {
        parse_location();
      } else if (is(".file")) {
        parse_file();
      } else if (is(".pragma")) {
        while (!accept(";")) take();
      } else if (is(".reg")) {
        parse_registers(f);
      } else if (is(".shared") || is(".local") || is(".param")) {
        const std::string_view space = take().text.substr(1);
        f.body.emplace_back(parse_variable(space));
        expect(";");
      } else if (here(1).text == ":" && here(2).text != ":") {
        parse_label(f);
      } else {
        f.body.emplace_back(parse_instruction());
      }
    } while (depth);
  }

  void parse_label(Function& f) {
    const std::string_view name = take().text;
    take();
    if (is(".callprototype")) {  // of calls through pointers, which are an error where they are used
      while (!accept(";")) take();
      return;
    }
    if (!accept(".branchtargets")) {
      f.body.emplace_back(Label{name});
      return;
    }
    BranchTargets targets{name, {}};
    do targets.labels.push_back(take().text);
    while (accept(","));
    expect(";");
    f.body.emplace_back(std::move(targets));
  }

  // .loc file line column [, function_name label, inlined_at file line column]
  void parse_location() {
    const int line = take().line;
    const auto number = [&] { return static_cast<int>(integer()); };
    Location location{.file = number(), .line = number(), .column = number()};
    while (here().line == line && here().kind != Token::Kind::end)
      if (take().text == "inlined_at") {
        const std::tuple call{number(), number(), number()};
        const auto known = last_location_at_.find(call);
        if (known != last_location_at_.end()) {
          location.inlined_at = known->second;
        } else {
          location.inlined_at = static_cast<int>(module_.locations.size());
          module_.locations.push_back({std::get<0>(call), std::get<1>(call), std::get<2>(call), -1});
        }
      }
    location_ = static_cast<int>(module_.locations.size());
    module_.locations.push_back(location);
    last_location_at_[{location.file, location.line, location.column}] = location_;
  }

  void parse_registers(Function& f) {
    take();
    Registers r;
    r.type = take().text.substr(1);
    do {
      r.name = take().text;
      r.count = -1;
      if (accept("<")) {
        r.count = static_cast<int>(integer());
        expect(">");
      }
      f.body.emplace_back(r);
    } while (accept(","));
    expect(";");
  }

  Instruction parse_instruction() {
    Instruction i{.line = here().line, .location = location_};
    if (accept("@")) {
      i.guard_negated = accept("!");
      i.guard = take().text;
    }
    if (here().kind != Token::Kind::word || here().text.starts_with('.')) wrong("expected an instruction");
    i.opcode = take().text;
    // Modifiers such as .L2::128B hold colons, which the lexer splits off.
    while (is(":") && here(1).text == ":") {
      take(), take();
      const std::string_view rest = take().text;
      i.opcode = {i.opcode.data(), static_cast<size_t>(rest.data() + rest.size() - i.opcode.data())};
    }
    if (!is(";")) do
        i.operands.push_back(parse_operand());
      while (accept(","));
    expect(";");
    return i;
  }

  Operand literal() {
    Operand o;
    const std::string_view text = here().text;
    const bool is_f32 = text.starts_with("0f") || text.starts_with("0F");
    const bool is_f64 = text.starts_with("0d") || text.starts_with("0D");
    o.kind = is_f32 ? Operand::Kind::real32 : is_f64 ? Operand::Kind::real64 : Operand::Kind::integer;
    if (is_f32 || is_f64) {
      const std::string_view digits = text.substr(2);
      std::from_chars(digits.data(), digits.data() + digits.size(), o.bits, 16);
      take();
    } else {
      o.bits = integer();
    }
    return o;
  }

  Operand parse_operand() {
    Operand o;
    if (is("{") || is("(")) {
      const std::string_view close = take().text == "{" ? "}" : ")";
      o.kind = Operand::Kind::list;
      while (!accept(close)) {
        o.parts.push_back(parse_operand());
        accept(",");
      }
      return o;
    }
    if (accept("[")) {
      o.kind = Operand::Kind::address;
      if (here().text == "-" || std::isdigit(static_cast<unsigned char>(here().text[0])))
        o.offset = static_cast<int64_t>(integer());
      else
        o.name = take().text;
      parse_offset(o);
      if (accept(",")) o.parts.push_back(parse_operand());  // the coordinates of a tensor copy
      expect("]");
      return o;
    }
    o.negated = accept("!");
    if (is("-") || std::isdigit(static_cast<unsigned char>(here().text[0]))) return literal();
    if (here().kind != Token::Kind::word) wrong("expected an operand");
    o.name = take().text;
    if (accept("|")) o.second = take().text;
    parse_offset(o);
    return o;
  }

  void parse_offset(Operand& o) {
    if (accept("+"))
      o.offset += static_cast<int64_t>(integer());
    else if (is("-"))
      o.offset += static_cast<int64_t>(integer());
  }

  Module& module_;
  std::vector<Token> tokens_;
  size_t at_ = 0;
  int location_ = -1;
  std::map<std::tuple<int, int, int>, int> last_location_at_;
};

}  // namespace

uint64_t bytes_of_type(std::string_view type) {
  static const std::unordered_map<std::string_view, uint64_t> bytes{
      {"u8", 1},    {"s8", 1},     {"b8", 1},  {"u16", 2}, {"s16", 2}, {"b16", 2},
      {"f16", 2},   {"bf16", 2},   {"u32", 4}, {"s32", 4}, {"b32", 4}, {"f32", 4},
      {"f16x2", 4}, {"bf16x2", 4}, {"u64", 8}, {"s64", 8}, {"b64", 8}, {"f64", 8}};
  const auto found = bytes.find(type);
  return found == bytes.end() ? 0 : found->second;
}

int architecture_of(const Module& module) {
  int number = 0;
  if (module.target.starts_with("sm_"))
    std::from_chars(module.target.data() + 3, module.target.data() + module.target.size(), number);
  check(number, "the PTX target is not an architecture: ", module.target);
  return number;
}

std::unique_ptr<Module> parse(std::string text) {
  auto module = std::make_unique<Module>();
  module->text = std::move(text);
  Parser(*module).parse_module();
  return module;
}

std::string describe_location(const Module& module, int location, int ptx_line) {
  if (location < 0) return str("PTX line ", ptx_line);
  std::string text;
  for (int at = location; at >= 0; at = module.locations[static_cast<size_t>(at)].inlined_at) {
    const Location& l = module.locations[static_cast<size_t>(at)];
    const auto file = module.files.find(l.file);
    text += str(text.empty() ? "" : ", inlined at ",
                file == module.files.end() ? std::string_view("unknown file") : file->second, ':', l.line);
  }
  return text;
}

}  // namespace flatshard::ptx_vm
