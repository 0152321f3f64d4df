#pragma once
// Executes a template. Limits ensure that no template crashes the program, hangs it or fills its memory:
// JinjaLimits here, and the limits on texts (sourced_text.h), values (jinja_value.h) and syntax
// (jinja_parser.h).

#include <cstdint>
#include <map>
#include <string>

#include "text/jinja/jinja_node.h"

namespace flatshard {

struct JinjaLimits {
  int64_t steps =
      20'000'000;   // nodes executed, and about one more for every 64 bytes or item that they handle
  int depth = 400;  // nodes executed inside each other, including in macros
};

struct JinjaSettings {
  std::string date;  // date of strftime_now (template_date.h); "" makes its use an Error
  JinjaLimits limits;
};

// Returns the text that the template prints, given the variables. An Error begins with name:line.
SourcedText run_jinja(const JinjaNode& body, const std::string& name,
                      const std::map<std::string, JinjaValue>& variables, const JinjaSettings& settings);

}  // namespace flatshard
