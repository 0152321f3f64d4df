#pragma once
// Initial values (InitialValues of kernels/init.h) that are read from weights, and initial values of models
// with 4-bit weights. Random values are in kernels/init.h: random_values().

#include "hub/quantized/read_values.h"
#include "kernels/init.h"
#include "model/config.h"

namespace flatshard {

// Values from `read`, converted to the dtype of the parameter.
InitialValues values_read_by(ReadValues read);

// Bytes [first, first + count) of a parameter with a dtype of its own, which is a part of a 4-bit weight.
using ReadBytes = std::function<void(const std::string& name, int64_t first, int64_t count, std::byte* to)>;
InitialValues bytes_read_by(ReadBytes read);

// Returns `values`, with the parts of 4-bit weights from `parts`.
InitialValues with_parts(InitialValues values, InitialValues parts);

// Returns `values`, with the parts of 4-bit weights quantized from the `values` of the unquantized model.
InitialValues quantized_values(InitialValues values, const ModelConfig& config);

}  // namespace flatshard
