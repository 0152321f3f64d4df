#pragma once
// Initial values (InitialValues of kernels/init.h) from weights that are read, and of models with 4-bit
// weights. Random ones are random_values() of kernels/init.h.

#include "hub/quantized/read_values.h"
#include "kernels/init.h"
#include "model/config.h"

namespace flatshard {

// Values that `read` supplies, converted to the dtype of the parameter.
InitialValues values_read_by(ReadValues read);

// Bytes [first, first + count) that `read` supplies, of parameters with a dtype of their own: the parts of
// 4-bit weights.
using ReadBytes = std::function<void(const std::string& name, int64_t first, int64_t count, std::byte* to)>;
InitialValues bytes_read_by(ReadBytes read);

// `values`, except that the parts of 4-bit weights are those of `parts`.
InitialValues with_parts(InitialValues values, InitialValues parts);

// `values`, except that the parts of 4-bit weights are made from the weights that `values` has for the same
// model without them.
InitialValues quantized_values(InitialValues values, const ModelConfig& config);

}  // namespace flatshard
