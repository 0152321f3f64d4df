#pragma once
// Initial values of a model with 4-bit weights, made from values of any kind: those of a published model, or
// random ones.

#include "kernels/init.h"
#include "model/config.h"

namespace flatshard {

// `values`, except that the parts of 4-bit weights are made from the weights that `values` has for the same
// model without them.
InitialValues quantized_values(InitialValues values, const ModelConfig& config);

// Initial values from bytes [first, first + count) that `read` supplies, of parameters with a dtype of their
// own.
using ReadBytes = std::function<void(const std::string& name, int64_t first, int64_t count, std::byte* to)>;
InitialValues stored_values(ReadBytes read);

}  // namespace flatshard
