#include "text/jinja/jinja_parser.h"

#include "text/jinja/jinja_expressions.h"

namespace flatshard {
namespace {

class Parser : private JinjaExpressions {
 public:
  Parser(std::string_view source, const std::string& name) : JinjaExpressions(source, name) {}

  Node run() { return parse_body({}); }

 private:
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
};

}  // namespace

std::unique_ptr<JinjaNode> parse_jinja(std::string_view source, const std::string& name) {
  return Parser(source, name).run();
}

}  // namespace flatshard
