#pragma once
// What a matrix product ends with: an op on c or, in a backward pass, on the gradient that c is. It runs
// after the product, or in the product's kernel where that can do it (gemm_sm90.h); then what c holds as a
// gradient is not defined afterwards.

#include <variant>

#include "kernels/gelu.h"
#include "kernels/swiglu.h"

namespace flatshard {

using ProductEnd = std::variant<std::monostate, SwigluForward, SwigluBackward, GeluForward, GeluBackward>;

void run(Stream& stream, const ProductEnd& end);

}  // namespace flatshard
