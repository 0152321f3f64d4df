#pragma once
// What a matrix product ends with: an op on c or, in a backward pass, on the gradient that c is. It runs
// after the product, or in the product's kernel where that can do it (gemm_sm90.h); then what c holds as a
// gradient is not defined afterwards.

#include <variant>

#include "kernels/clamped_glu.h"
#include "kernels/gelu.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"

namespace flatshard {

using ProductEnd = std::variant<std::monostate, SwigluForward, SwigluBackward, GeluForward, GeluBackward,
                                RopeForward, ClampedGluForward, ClampedGluBackward>;

void run(Stream& stream, const ProductEnd& end);

// The bytes that a product moves more, or fewer if negative, when its kernel ends with this and c has
// `bytes_of_c`.
double more_bytes(const ProductEnd& end, double bytes_of_c);

}  // namespace flatshard
