#pragma once
// Selects the parameters to train and the parameters with weight decay. The selection changes a model's
// declarations before its memory is laid out.

#include <string>
#include <vector>

#include "model/model.h"

namespace flatshard {

// Returns whether `name` matches a pattern in which * matches any text.
bool matches(const std::string& pattern, const std::string& name);

// trainable: name patterns; parameters that match none are frozen. no_decay: kinds ("norm", "bias", "embed")
// or name patterns. Throws an Error if a pattern matches nothing.
void select_params(Model& model, const std::vector<std::string>& trainable,
                   const std::vector<std::string>& no_decay);
// The selection for a model with adapters: trains the adapters and the modules that `saved` names (lora.h),
// and freezes the rest.
void select_adapter_params(Model& model, const std::vector<std::string>& saved,
                           const std::vector<std::string>& no_decay);

int64_t trainable_count(const Model& model);

}  // namespace flatshard
