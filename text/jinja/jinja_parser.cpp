#include "text/jinja/jinja_parser.h"

#include <algorithm>
#include <initializer_list>

#include "runtime/check.h"
#include "text/jinja/jinja_lexer.h"

namespace flatshard {
namespace {

class Parser {
 public:
  Parser(std::string_view source, const std::string& name)
      : name_(name), tokens_(jinja_tokens(source, name)) {}

  std::unique_ptr<JinjaNode> run() { return parse_body({}); }

 private:
  using Kind = JinjaToken::Kind;
  using NodeKind = JinjaNodeKind;
  using Node = std::unique_ptr<JinjaNode>;
  using Operand = Node (Parser::*)();  // parses one operand
  using Names = std::initializer_list<std::string_view>;

  static bool is_one_of(const std::string& text, Names names) {
    return std::find(names.begin(), names.end(), text) != names.end();
  }

  // --- tokens ---

  const JinjaToken& token(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  JinjaToken next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is_op(std::string_view op) const { return token().is_op(op); }
  bool is_name(std::string_view name) const { return token().is_name(name); }
  bool is_end_of_tag() const {
    return token().kind == Kind::block_end || token().kind == Kind::output_end || token().kind == Kind::end;
  }

  [[noreturn]] void fail_here(const std::string& reason) const {
    fail(str(name_, ':', token().line, ": ", reason));
  }
  [[noreturn]] void fail_unexpected(const std::string& expected) const {
    const std::string found = is_end_of_tag() ? "the end of the tag" : '"' + token().text + '"';
    fail_here("expected " + expected + ", found " + found);
  }

  bool skip_op(std::string_view op) {
    if (!is_op(op)) return false;
    ++at_;
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!is_name(name)) return false;
    ++at_;
    return true;
  }
  void expect_op(std::string_view op) {
    if (!skip_op(op)) fail_unexpected(str('"', op, '"'));
  }
  std::string expect_name() {
    if (token().kind != Kind::name) fail_unexpected("a name");
    return next().text;
  }
  void expect_end_of_block() {
    skip_op(":");
    if (token().kind != Kind::block_end) fail_unexpected("%}");
    ++at_;
  }

  // --- nodes ---

  // Bounds the parser's recursion.
  class Nesting {
   public:
    explicit Nesting(Parser& parser) : parser_(parser) {
      if (++parser.nesting_ > kMostJinjaNesting)
        parser.fail_here(str("nested more than ", kMostJinjaNesting, " levels deep"));
    }
    ~Nesting() { --parser_.nesting_; }

   private:
    Parser& parser_;
  };

  template <class... Children>
  Node node(NodeKind kind, int line, std::string name = "", Children... children) {
    Node made = std::make_unique<JinjaNode>();
    made->kind = kind;
    made->line = line;
    made->name = std::move(name);
    (add(*made, std::move(children)), ...);
    return made;
  }

  // Adds a child and bounds the height of the tree, which a chain such as a + b + c + ... raises without
  // recursion.
  void add(JinjaNode& parent, Node child) {
    if (child) parent.height = std::max(parent.height, child->height + 1);
    if (parent.height > kMostJinjaNesting)
      fail_here(str("an expression or statement has more than ", kMostJinjaNesting, " levels"));
    parent.children.push_back(std::move(child));
  }

  Node literal(int line, JinjaValue value) {
    Node made = node(NodeKind::literal, line);
    made->value = std::move(value);
    return made;
  }

  // --- statements ---

  // Parses up to the end of the template, or up to a tag with one of these names; the name is the next token.
  Node parse_body(Names ends) {
    const Nesting nesting(*this);
    Node body = node(NodeKind::body, token().line);
    while (token().kind != Kind::end) {
      const int line = token().line;
      if (token().kind == Kind::data) {
        Node data = node(NodeKind::data, line);
        data->value = SourcedText(next().text);
        add(*body, std::move(data));
      } else if (token().kind == Kind::output_begin) {
        ++at_;
        add(*body, node(NodeKind::output, line, "", parse_tuple()));
        if (token().kind != Kind::output_end) fail_unexpected("}}");
        ++at_;
      } else {
        if (token(1).kind == Kind::name && is_one_of(token(1).text, ends)) {
          ++at_;
          return body;
        }
        ++at_;
        add(*body, parse_statement());
      }
    }
    if (ends.size() > 0) fail_here(str("the template ends before {% ", *(ends.end() - 1), " %}"));
    return body;
  }

  // Parses the body of a statement that has one end tag, and the end tag.
  Node parse_block(std::string_view end) {
    expect_end_of_block();
    Node body = parse_body({end});
    ++at_;
    expect_end_of_block();
    return body;
  }

  Node parse_statement() {
    const int line = token().line;
    const std::string tag = expect_name();
    Node made;
    if (tag == "if") return parse_if(line);
    if (tag == "for") return parse_for(line);
    if (tag == "set") return parse_set(line);
    if (tag == "macro") {
      made = node(NodeKind::macro, line, expect_name());
      add(*made, parse_signature());
      add(*made, parse_block("endmacro"));
      return made;
    }
    if (tag == "call") {
      made = node(NodeKind::call_block, line, "caller");
      add(*made, is_op("(") ? parse_signature() : node(NodeKind::signature, line));
      add(*made, parse_expression());
      if (made->child(1).kind != NodeKind::call) fail_here("{% call %} needs the call of a macro");
      add(*made, parse_block("endcall"));
      return made;
    }
    if (tag == "filter") {
      made = node(NodeKind::filter_block, line, "", parse_filters(nullptr, true));
      add(*made, parse_block("endfilter"));
      return made;
    }
    if (tag == "generation") return node(NodeKind::generation, line, "", parse_block("endgeneration"));
    if (tag == "break" || tag == "continue") {
      expect_end_of_block();
      return node(tag == "break" ? NodeKind::loop_break : NodeKind::loop_continue, line);
    }
    while (!is_end_of_tag()) ++at_;
    expect_end_of_block();
    return node(NodeKind::unsupported, line, tag);
  }

  Node parse_if(int line) {
    Node made = node(NodeKind::if_else, line);
    while (true) {
      add(*made, parse_tuple(false));
      expect_end_of_block();
      add(*made, parse_body({"elif", "else", "endif"}));
      const std::string tag = next().text;
      if (tag == "elif") continue;
      if (tag == "else")
        add(*made, parse_block("endif"));
      else
        expect_end_of_block();
      return made;
    }
  }

  Node parse_for(int line) {
    Node made = node(NodeKind::for_in, line, "", parse_target(false));
    if (!skip_name("in")) fail_unexpected("\"in\"");
    add(*made, parse_tuple(false));
    add(*made, skip_name("if") ? parse_expression() : nullptr);
    if (skip_name("recursive")) made->name = "recursive";
    expect_end_of_block();
    add(*made, parse_body({"else", "endfor"}));
    if (next().text == "else")
      add(*made, parse_block("endfor"));
    else
      expect_end_of_block();
    return made;
  }

  Node parse_set(int line) {
    Node target = parse_target(true);
    if (skip_op("=")) {
      Node made = node(NodeKind::set, line, "", std::move(target), parse_tuple());
      expect_end_of_block();
      return made;
    }
    Node filter = parse_filters(nullptr, false);
    Node made = node(NodeKind::set_block, line, "", std::move(target), std::move(filter));
    add(*made, parse_block("endset"));
    return made;
  }

  // Parses a name, a tuple of targets, or (in `set`) an attribute of a namespace.
  Node parse_target(bool with_namespace) {
    const Nesting nesting(*this);
    const int line = token().line;
    Node tuple = node(NodeKind::tuple, line);
    while (is_op("(") || (token().kind == Kind::name && !is_name("in"))) {
      Node target;
      if (skip_op("(")) {
        target = parse_target(with_namespace);
        expect_op(")");
      } else {
        target = node(NodeKind::name, line, next().text);
        if (with_namespace && skip_op("."))
          target = node(NodeKind::attribute, line, expect_name(), std::move(target));
      }
      const bool is_only = tuple->children.empty() && !is_op(",");
      if (is_only) return target;
      add(*tuple, std::move(target));
      if (!skip_op(",")) return tuple;
    }
    if (tuple->children.empty()) fail_unexpected("a name");
    return tuple;
  }

  Node parse_signature() {
    Node made = node(NodeKind::signature, token().line);
    expect_op("(");
    while (!is_op(")")) {
      if (!made->children.empty()) expect_op(",");
      const int line = token().line;
      const std::string name = expect_name();
      Node value = skip_op("=") ? parse_expression() : nullptr;
      add(*made, node(NodeKind::keyword, line, name, std::move(value)));
    }
    expect_op(")");
    return made;
  }

  // --- expressions ---

  // Parses one expression, or a tuple without parentheses. A tag of `for` or `if` has no conditional at its
  // top.
  Node parse_tuple(bool with_conditional = true) {
    const int line = token().line;
    Node first = with_conditional ? parse_expression() : parse_or();
    if (!is_op(",")) return first;
    Node tuple = node(NodeKind::tuple, line, "", std::move(first));
    while (skip_op(",")) {
      if (is_end_of_tag() || is_op(")") || is_name("recursive")) break;
      add(*tuple, with_conditional ? parse_expression() : parse_or());
    }
    return tuple;
  }

  Node parse_expression() {
    const Nesting nesting(*this);
    Node left = parse_or();
    while (is_name("if")) {
      const int line = next().line;
      Node condition = parse_or();
      Node otherwise = skip_name("else") ? parse_expression() : nullptr;
      left =
          node(NodeKind::conditional, line, "", std::move(condition), std::move(left), std::move(otherwise));
    }
    return left;
  }

  // Parses operands with operators of one precedence between them, from left to right.
  Node parse_binary(Operand operand, Names operators) {
    Node left = (this->*operand)();
    while ((token().kind == Kind::op || token().kind == Kind::name) && is_one_of(token().text, operators)) {
      const JinjaToken op = next();
      left = node(NodeKind::binary, op.line, op.text, std::move(left), (this->*operand)());
    }
    return left;
  }
  Node parse_or() { return parse_binary(&Parser::parse_and, {"or"}); }
  Node parse_and() { return parse_binary(&Parser::parse_not, {"and"}); }
  Node parse_sum() { return parse_binary(&Parser::parse_concat, {"+", "-"}); }
  Node parse_product() { return parse_binary(&Parser::parse_power, {"*", "/", "//", "%"}); }
  Node parse_power() { return parse_binary(&Parser::parse_operand, {"**"}); }

  Node parse_not() {
    const Nesting nesting(*this);
    if (!is_name("not")) return parse_comparison();
    const int line = next().line;
    return node(NodeKind::unary, line, "not", parse_not());
  }

  Node parse_comparison() {
    Node first = parse_sum();
    Node made;
    while (true) {
      const int line = token().line;
      std::string op;
      if (token().kind == Kind::op && is_one_of(token().text, {"==", "!=", "<", "<=", ">", ">="}))
        op = next().text;
      else if (skip_name("in"))
        op = "in";
      else if (is_name("not") && token(1).is_name("in")) {
        at_ += 2;
        op = "not in";
      } else {
        return made ? std::move(made) : std::move(first);
      }
      if (!made) made = node(NodeKind::comparison, line, "", std::move(first));
      add(*made, node(NodeKind::literal, line, op));
      add(*made, parse_sum());
    }
  }

  Node parse_concat() {
    Node first = parse_product();
    if (!is_op("~")) return first;
    Node made = node(NodeKind::concat, token().line, "", std::move(first));
    while (skip_op("~")) add(*made, parse_product());
    return made;
  }

  Node parse_operand() { return parse_filters_and_tests(parse_signed()); }

  Node parse_signed() {
    const Nesting nesting(*this);
    Node made;
    if (is_op("-") || is_op("+")) {
      const JinjaToken op = next();
      made = node(NodeKind::unary, op.line, op.text, parse_signed());
    } else {
      made = parse_primary();
    }
    return parse_postfix(std::move(made));
  }

  Node parse_primary() {
    const JinjaToken first = next();
    switch (first.kind) {
      case Kind::name:
        if (is_one_of(first.text, {"true", "True", "false", "False"}))
          return literal(first.line, (first.text[0] | 0x20) == 't');
        if (is_one_of(first.text, {"none", "None"})) return literal(first.line, JinjaValue());
        return node(NodeKind::name, first.line, first.text);
      case Kind::text: {
        std::string text = first.text;
        while (token().kind == Kind::text) text += next().text;
        return literal(first.line, SourcedText(text));
      }
      case Kind::integer:
        return literal(first.line, first.integer);
      case Kind::number:
        return literal(first.line, first.number);
      case Kind::op:
        if (first.text == "(") {
          Node made = is_op(")") ? node(NodeKind::tuple, first.line) : parse_tuple();
          expect_op(")");
          return made;
        }
        if (first.text == "[") return parse_items(node(NodeKind::list, first.line), "]");
        if (first.text == "{") return parse_items(node(NodeKind::dict, first.line), "}");
        break;
      default:
        break;
    }
    if (first.kind != Kind::end) --at_;
    fail_unexpected("an expression");
  }

  Node parse_items(Node made, std::string_view end) {
    while (!is_op(end)) {
      if (!made->children.empty()) expect_op(",");
      if (is_op(end)) break;
      add(*made, parse_expression());
      if (made->kind != NodeKind::dict) continue;
      expect_op(":");
      add(*made, parse_expression());
    }
    expect_op(end);
    return made;
  }

  Node parse_postfix(Node made) {
    while (true) {
      const int line = token().line;
      if (skip_op(".")) {
        if (token().kind == Kind::integer) {
          const int64_t index = next().integer;
          made = node(NodeKind::item, line, "", std::move(made), literal(line, index));
        } else {
          made = node(NodeKind::attribute, line, expect_name(), std::move(made));
        }
      } else if (skip_op("[")) {
        Node index = parse_index();
        expect_op("]");
        made = node(NodeKind::item, line, "", std::move(made), std::move(index));
      } else if (is_op("(")) {
        made = node(NodeKind::call, line, "", std::move(made));
        parse_arguments(*made);
      } else {
        return made;
      }
    }
  }

  Node parse_index() {
    const int line = token().line;
    Node begin = is_op(":") ? nullptr : parse_expression();
    if (!skip_op(":")) return begin;
    const auto part = [&] { return is_op(":") || is_op("]") ? nullptr : parse_expression(); };
    Node end = part();
    Node step = skip_op(":") ? part() : nullptr;
    return node(NodeKind::slice, line, "", std::move(begin), std::move(end), std::move(step));
  }

  void parse_arguments(JinjaNode& call) {
    expect_op("(");
    for (bool is_first = true; !is_op(")"); is_first = false) {
      if (!is_first) expect_op(",");
      if (is_op(")")) break;
      const int line = token().line;
      if (skip_op("*")) {
        add(call, node(NodeKind::star, line, "", parse_expression()));
      } else if (skip_op("**")) {
        add(call, node(NodeKind::double_star, line, "", parse_expression()));
      } else if (token().kind == Kind::name && token(1).is_op("=")) {
        const std::string name = next().text;
        ++at_;
        add(call, node(NodeKind::keyword, line, name, parse_expression()));
      } else {
        if (!call.children.empty() && call.children.back() && call.children.back()->kind == NodeKind::keyword)
          fail_here("a positional argument follows a named one");
        add(call, parse_expression());
      }
    }
    expect_op(")");
  }

  Node parse_filters_and_tests(Node made) {
    while (true) {
      if (is_op("|")) {
        made = parse_filters(std::move(made), false);
      } else if (is_name("is")) {
        made = parse_test(std::move(made));
      } else if (is_op("(")) {
        made = parse_postfix(std::move(made));
      } else {
        return made;
      }
    }
  }

  // Parses subject | filter | filter(...). In the tag of a block, the first filter has neither subject nor |.
  Node parse_filters(Node subject, bool starts_inline) {
    while (starts_inline || skip_op("|")) {
      starts_inline = false;
      const int line = token().line;
      subject = node(NodeKind::filter, line, expect_name(), std::move(subject));
      if (is_op("(")) parse_arguments(*subject);
    }
    return subject;
  }

  Node parse_test(Node subject) {
    const int line = next().line;
    const bool negated = skip_name("not");
    Node made = node(NodeKind::test, line, expect_name(), std::move(subject));
    const bool has_operand = is_op("[") || is_op("{") || token().kind == Kind::text ||
                             token().kind == Kind::integer || token().kind == Kind::number ||
                             (token().kind == Kind::name &&
                              !is_one_of(token().text, {"else", "or", "and", "is", "if", "in", "not"}));
    if (is_op("("))
      parse_arguments(*made);
    else if (has_operand)
      add(*made, parse_postfix(parse_primary()));
    return negated ? node(NodeKind::unary, line, "not", std::move(made)) : std::move(made);
  }

  const std::string& name_;
  std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace

std::unique_ptr<JinjaNode> parse_jinja(std::string_view source, const std::string& name) {
  return Parser(source, name).run();
}

}  // namespace flatshard
