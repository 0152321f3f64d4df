#pragma once
// The global functions of templates, except namespace(): the runtime owns its values.

#include <string>
#include <vector>

#include "text/jinja/jinja_arguments.h"

namespace flatshard {

const std::vector<std::string>& jinja_global_names();  // includes namespace
// raise_exception throws an Error with its message. strftime_now prints `date` (template_date.h).
JinjaValue jinja_global(const std::string& name, const JinjaArguments& arguments, const std::string& date);

}  // namespace flatshard
