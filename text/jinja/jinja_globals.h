#pragma once
// The global functions of templates, but for namespace(), whose values the runtime owns.

#include <string>
#include <vector>

#include "text/jinja/jinja_arguments.h"

namespace flatshard {

const std::vector<std::string>& jinja_global_names();  // with namespace
// raise_exception is an Error with its message. `date` is that of strftime_now (template_date.h).
JinjaValue jinja_global(const std::string& name, const JinjaArguments& arguments, const std::string& date);

}  // namespace flatshard
