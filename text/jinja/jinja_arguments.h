#pragma once
// The arguments of a call, and the built-in functions' parameters that they are bound to.

#include <cassert>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/jinja_value.h"

namespace flatshard {

// The name of an argument may come from data, as in dict(**message), so it is a text with its sources.
struct JinjaArguments {
  std::vector<JinjaValue> positional;
  std::vector<std::pair<SourcedText, JinjaValue>> named;
};

// The arguments in the order of the parameters.
class BoundArguments {
 public:
  // Throws an Error that names the function if an argument has no parameter, or is given twice.
  BoundArguments(std::string function, const JinjaArguments& arguments, std::vector<const char*> parameters);

  // Null if the argument was not given.
  const JinjaValue* find(size_t i) const {
    assert(i < values_.size());
    return values_[i].is(JinjaKind::undefined) ? nullptr : &values_[i];
  }
  const JinjaValue& required(size_t i) const;
  // Returns the argument, or this default if it is absent or None.
  const SourcedText* text(size_t i) const;
  int64_t integer(size_t i, int64_t otherwise) const;
  bool truth(size_t i) const { return values_[i].truth(); }

 private:
  std::string function_;
  std::vector<const char*> parameters_;
  std::vector<JinjaValue> values_;
};

// Built-in functions by name: filters, or the methods of a type. `apply` gets the subject of the filter, or
// the object of the method, and the arguments for these parameters.
struct JinjaBuiltin {
  std::vector<const char*> parameters;
  JinjaValue (*apply)(const JinjaValue& subject, const BoundArguments& arguments);
};
using JinjaBuiltins = std::map<std::string, JinjaBuiltin>;

}  // namespace flatshard
