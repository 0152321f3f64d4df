#pragma once
// Which parameters are trained, and which of them decay: applied to a model's declarations before anything is
// laid out.

#include <string>
#include <vector>

#include "model/model.h"

namespace flatshard {

// Whether `name` matches a pattern in which * stands for any run of characters.
bool matches(const std::string& pattern, const std::string& name);

// trainable: patterns of names; what matches none is frozen. no_decay: "norm", "bias" and "embed" name a kind
// of parameter, anything else is a pattern of names. A pattern that matches nothing is an Error.
void apply_groups(Model& model, const std::vector<std::string>& trainable,
                  const std::vector<std::string>& no_decay);

int64_t trainable_count(const Model& model);

}  // namespace flatshard
