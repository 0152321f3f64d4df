#pragma once
// Turns a CUDA runtime error code into an Error. For *_cuda.cpp and .cu files only.

#include <source_location>

#include <cuda_runtime_api.h>

#include "runtime/check.h"

namespace flatshard {

inline void cuda_check(cudaError_t status, const char* what,
                       std::source_location where = std::source_location::current()) {
  if (status != cudaSuccess) [[unlikely]]
    fail(str(what, ": ", cudaGetErrorString(status), " (", cudaGetErrorName(status), ")"), where);
}

}  // namespace flatshard
