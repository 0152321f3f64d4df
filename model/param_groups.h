#pragma once
// Selects the parameters to train and those with weight decay. Applied to a model's declarations before its
// memory is laid out.

#include <string>
#include <vector>

#include "model/model.h"

namespace flatshard {

// Whether `name` matches a pattern in which * matches any text.
bool matches(const std::string& pattern, const std::string& name);

// trainable: name patterns; parameters that match none are frozen. no_decay: kinds ("norm", "bias", "embed")
// or name patterns. A pattern that matches nothing is an Error.
void apply_groups(Model& model, const std::vector<std::string>& trainable,
                  const std::vector<std::string>& no_decay);
// For a model with adapters: trains these and the modules that `saved` names (lora.h), and freezes the rest.
void apply_adapter_groups(Model& model, const std::vector<std::string>& saved,
                          const std::vector<std::string>& no_decay);

int64_t trainable_count(const Model& model);

}  // namespace flatshard
