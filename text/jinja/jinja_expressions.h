#pragma once
// The parser of expressions. It shares with the parser of statements the access to tokens and the
// construction of nodes, which bounds the height of the tree. Internal to the parser.

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/check.h"
#include "text/jinja/jinja_lexer.h"
#include "text/jinja/jinja_parser.h"

namespace flatshard {

class JinjaExpressions {
 protected:
  using Kind = JinjaToken::Kind;
  using NodeKind = JinjaNodeKind;
  using Node = std::unique_ptr<JinjaNode>;
  using Operand = Node (JinjaExpressions::*)();  // parses one operand
  using Names = std::initializer_list<std::string_view>;

  JinjaExpressions(std::string_view source, const std::string& name)
      : name_(name), tokens_(jinja_tokens(source, name)) {}

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
    explicit Nesting(JinjaExpressions& parser) : parser_(parser) {
      if (++parser.nesting_ > kMostJinjaNesting)
        parser.fail_here(str("nested more than ", kMostJinjaNesting, " levels deep"));
    }
    ~Nesting() { --parser_.nesting_; }

   private:
    JinjaExpressions& parser_;
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

  // --- expressions ---

  // Parses one expression, or a tuple without parentheses. A tag of `for` or `if` has no conditional at its
  // top.
  Node parse_tuple(bool with_conditional = true);
  Node parse_expression();
  Node binary(Node left, Operand operand, Names operators);
  Node parse_or();
  Node parse_and();
  Node parse_not();
  Node parse_comparison();
  Node parse_sum();
  Node parse_concat();
  Node parse_product();
  Node parse_power();
  Node parse_signed();
  Node parse_unary(bool with_filter);
  Node parse_primary();
  Node parse_items(Node made, std::string_view end);
  Node parse_postfix(Node made);
  Node parse_index();
  void parse_arguments(JinjaNode& call);
  Node parse_filters_and_tests(Node made);
  // Parses subject | filter | filter(...). In the tag of a block, the first filter has neither subject nor |.
  Node parse_filters(Node subject, bool starts_inline);
  Node parse_test(Node subject);

  const std::string& name_;
  std::vector<JinjaToken> tokens_;
  size_t at_ = 0;
  int nesting_ = 0;
};

}  // namespace flatshard
