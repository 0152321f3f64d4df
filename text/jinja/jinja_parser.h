#pragma once
// The parser of Jinja templates. It accepts every statement: one that it does not know becomes a node that
// fails when it is executed, so that a template with an unsupported construct renders if it does not use it.

#include <memory>
#include <string>
#include <string_view>

#include "text/jinja/jinja_node.h"

namespace flatshard {

// The body of the template. An Error begins with name:line. Deeper nesting than this is one.
constexpr int kMostJinjaNesting = 200;
std::unique_ptr<JinjaNode> parse_jinja(std::string_view source, const std::string& name);

}  // namespace flatshard
