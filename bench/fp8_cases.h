#pragma once
// Cases of products of FP8 (E4M3) operands by cuBLASLt, which no op uses: they measure what such products
// would gain. c = x w^T with sums in fp32; x (M, K) and w (N, K) have their scales in fp32, a scalar each, or
// by blocks: x one for 128 elements of a row, w one for 128 x 128 elements, or like x if both are
// activations.

#include <vector>

#include "bench/case.h"

namespace flatshard::bench {

// Empty in a build without cuBLASLt. The cases run on a GPU only.
std::vector<Case> fp8_cases(Scale scale);

}  // namespace flatshard::bench
