#pragma once
// The operators of templates, with Python's meaning, and the built-in functions: filters, tests, methods and
// global functions.
// An Error describes an operation without a meaning, such as an unknown filter; the runtime adds the line.

#include <optional>
#include <string>
#include <vector>

#include "text/jinja/jinja_arguments.h"
#include "text/jinja/jinja_value.h"

namespace flatshard {

// object.name and object[index]; undefined if there is no such member. A method is a function that only the
// runtime can call, together with its object.
JinjaValue jinja_attribute(const JinjaValue& object, const std::string& name);
JinjaValue jinja_item(const JinjaValue& object, const JinjaValue& index);
// object[begin:end:step]
JinjaValue jinja_slice(const JinjaValue& object, std::optional<int64_t> begin, std::optional<int64_t> end,
                       std::optional<int64_t> step);

// + - * / // % **
JinjaValue jinja_binary(const std::string& op, const JinjaValue& a, const JinjaValue& b);
bool jinja_contains(const JinjaValue& container, const JinjaValue& value);
// == != < <= > >= in "not in"
bool jinja_compare(const std::string& op, const JinjaValue& left, const JinjaValue& right);

JinjaValue jinja_filter(const std::string& name, const JinjaValue& subject, const JinjaArguments& arguments);
bool jinja_test(const std::string& name, const JinjaValue& subject, const JinjaArguments& arguments);
// Whether values of this type have a method with this name.
bool has_jinja_method(const JinjaValue& object, const std::string& name);
JinjaValue jinja_method(const std::string& name, const JinjaValue& object, const JinjaArguments& arguments);

const std::vector<std::string>& jinja_global_names();
// A global function except namespace(), whose values the runtime owns. raise_exception throws an Error with
// its message. strftime_now prints `date` (template_date.h).
JinjaValue jinja_global(const std::string& name, const JinjaArguments& arguments, const std::string& date);

}  // namespace flatshard
