#pragma once
// The syntax tree of a template. The children of a node depend on its kind; a child marked ? in the table may
// be absent (null).

#include <memory>
#include <string>
#include <vector>

#include "text/jinja/jinja_value.h"

namespace flatshard {

enum class JinjaNodeKind {
  // expressions: name, value | children
  literal,      // value
  name,         // name
  list,         // items
  tuple,        // items
  dict,         // key, value, key, value, ...
  attribute,    // name | object
  item,         // object, index
  slice,        // begin?, end?, step?
  call,         // callee, arguments...
  filter,       // name | subject? (absent in the tag of a block), arguments...
  test,         // name | subject, arguments...
  keyword,      // name | value; an argument, like the next two
  star,         // list of arguments
  double_star,  // dictionary of arguments
  unary,        // name: operator | operand
  binary,       // name: operator | left, right
  comparison,   // first, then pairs of: literal (name: operator), operand
  concat,       // operands
  conditional,  // condition, then, else?
  // statements
  body,          // statements
  data,          // value
  output,        // expression
  if_else,       // condition, body, [condition, body]..., else body?
  for_in,        // target, iterable, filter?, body, else body?
  set,           // target, expression
  set_block,     // target, filter?, body
  macro,         // name | signature, body
  call_block,    // signature, call, body
  signature,     // parameters: keyword nodes with an absent value where there is no default
  filter_block,  // filter, body
  generation,    // body
  loop_break,
  loop_continue,
  unsupported,  // name: the tag
};

struct JinjaNode {
  JinjaNodeKind kind;
  int line;
  std::string name;
  JinjaValue value;
  std::vector<std::unique_ptr<JinjaNode>> children;
  int height = 1;  // number of levels of the tree

  const JinjaNode& child(size_t i) const { return *children[i]; }
  const JinjaNode* optional_child(size_t i) const {
    return i < children.size() ? children[i].get() : nullptr;
  }
};

}  // namespace flatshard
