#include "text/jinja/jinja_expressions.h"

namespace flatshard {

auto JinjaExpressions::parse_tuple(bool with_conditional) -> Node {
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

auto JinjaExpressions::parse_expression() -> Node {
  const Nesting nesting(*this);
  Node left = parse_or();
  while (is_name("if")) {
    const int line = next().line;
    Node condition = parse_or();
    Node otherwise = skip_name("else") ? parse_expression() : nullptr;
    left = node(NodeKind::conditional, line, "", std::move(condition), std::move(left), std::move(otherwise));
  }
  return left;
}

auto JinjaExpressions::binary(Node left, Operand operand, Names operators) -> Node {
  while ((token().kind == Kind::op || token().kind == Kind::name) && is_one_of(token().text, operators)) {
    const JinjaToken op = next();
    left = node(NodeKind::binary, op.line, op.text, std::move(left), (this->*operand)());
  }
  return left;
}
auto JinjaExpressions::parse_or() -> Node {
  return binary(parse_and(), &JinjaExpressions::parse_and, {"or"});
}
auto JinjaExpressions::parse_and() -> Node {
  return binary(parse_not(), &JinjaExpressions::parse_not, {"and"});
}

auto JinjaExpressions::parse_not() -> Node {
  const Nesting nesting(*this);
  if (!is_name("not")) return parse_comparison();
  const int line = next().line;
  return node(NodeKind::unary, line, "not", parse_not());
}

auto JinjaExpressions::parse_comparison() -> Node {
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

auto JinjaExpressions::parse_sum() -> Node {
  return binary(parse_concat(), &JinjaExpressions::parse_concat, {"+", "-"});
}

auto JinjaExpressions::parse_concat() -> Node {
  Node first = parse_product();
  if (!is_op("~")) return first;
  Node made = node(NodeKind::concat, token().line, "", std::move(first));
  while (skip_op("~")) add(*made, parse_product());
  return made;
}

auto JinjaExpressions::parse_product() -> Node {
  return binary(parse_power(), &JinjaExpressions::parse_power, {"*", "/", "//", "%"});
}
auto JinjaExpressions::parse_power() -> Node {
  return binary(parse_signed(), &JinjaExpressions::parse_signed, {"**"});
}
auto JinjaExpressions::parse_signed() -> Node { return parse_unary(true); }

auto JinjaExpressions::parse_unary(bool with_filter) -> Node {
  const Nesting nesting(*this);
  Node made;
  if (is_op("-") || is_op("+")) {
    const JinjaToken op = next();
    made = node(NodeKind::unary, op.line, op.text, parse_unary(false));
  } else {
    made = parse_primary();
  }
  made = parse_postfix(std::move(made));
  return with_filter ? parse_filters_and_tests(std::move(made)) : std::move(made);
}

auto JinjaExpressions::parse_primary() -> Node {
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

auto JinjaExpressions::parse_items(Node made, std::string_view end) -> Node {
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

auto JinjaExpressions::parse_postfix(Node made) -> Node {
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

auto JinjaExpressions::parse_index() -> Node {
  const int line = token().line;
  Node begin = is_op(":") ? nullptr : parse_expression();
  if (!skip_op(":")) return begin;
  const auto part = [&] { return is_op(":") || is_op("]") ? nullptr : parse_expression(); };
  Node end = part();
  Node step = skip_op(":") ? part() : nullptr;
  return node(NodeKind::slice, line, "", std::move(begin), std::move(end), std::move(step));
}

void JinjaExpressions::parse_arguments(JinjaNode& call) {
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

auto JinjaExpressions::parse_filters_and_tests(Node made) -> Node {
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

auto JinjaExpressions::parse_filters(Node subject, bool starts_inline) -> Node {
  while (starts_inline || skip_op("|")) {
    starts_inline = false;
    const int line = token().line;
    subject = node(NodeKind::filter, line, expect_name(), std::move(subject));
    if (is_op("(")) parse_arguments(*subject);
  }
  return subject;
}

auto JinjaExpressions::parse_test(Node subject) -> Node {
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

}  // namespace flatshard
