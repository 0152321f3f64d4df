#pragma once
// The parser of Jinja templates. It accepts every statement: an unknown one becomes a node that fails when it
// is executed. So a template with an unsupported construct renders if it does not use the construct.

#include <memory>
#include <string>
#include <string_view>

#include "text/jinja/jinja_node.h"

namespace flatshard {

// Returns the body of the template. An Error begins with name:line. Deeper nesting than kMostJinjaNesting is
// an Error.
constexpr int kMostJinjaNesting = 200;
std::unique_ptr<JinjaNode> parse_jinja(std::string_view source, const std::string& name);

}  // namespace flatshard
