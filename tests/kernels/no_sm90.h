#pragma once
// Whether there is no GPU, real or on the PTX machine, that runs the project's products.

#include "kernels/gemm_sm90.h"
#include "runtime/gpu.h"

namespace flatshard::test {

inline bool has_no_sm90() { return cuda_device_count() == 0 || !cuda::has_gemm_sm90(); }

}  // namespace flatshard::test
