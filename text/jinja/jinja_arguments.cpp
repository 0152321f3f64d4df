#include "text/jinja/jinja_arguments.h"

#include <algorithm>
#include <string_view>

#include "runtime/check.h"

namespace flatshard {

BoundArguments::BoundArguments(std::string function, const JinjaArguments& arguments,
                               std::vector<const char*> parameters)
    : function_(std::move(function)),
      parameters_(std::move(parameters)),
      values_(parameters_.size(), JinjaValue::undefined("an argument is missing")) {
  check(arguments.positional.size() <= parameters_.size(), function_, " has ", arguments.positional.size(),
        " arguments, must have at most ", parameters_.size());
  std::copy(arguments.positional.begin(), arguments.positional.end(), values_.begin());
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                    [&](std::string_view parameter) { return parameter == name.bytes(); });
    const auto i = static_cast<size_t>(found - parameters_.begin());
    check(found != parameters_.end(), function_, " has no parameter '", name.bytes(), "'");
    check(i >= arguments.positional.size(), function_, " is given '", name.bytes(), "' twice");
    values_[i] = value;
  }
}

const JinjaValue& BoundArguments::required(size_t i) const {
  check(find(i) != nullptr, function_, " needs the argument '", parameters_[i], "'");
  return values_[i];
}

const SourcedText* BoundArguments::text(size_t i) const {
  const JinjaValue* value = find(i);
  return value == nullptr || value->is(JinjaKind::none) ? nullptr : &value->text();
}

int64_t BoundArguments::integer(size_t i, int64_t otherwise) const {
  const JinjaValue* value = find(i);
  return value == nullptr || value->is(JinjaKind::none) ? otherwise : value->integer();
}

}  // namespace flatshard
