#pragma once
// Turns a CUDA runtime error code into an Error. Included by *_cuda.cpp and .cu files, and by files that call
// CUDA's libraries.

#include <source_location>
#include <string>

#include <cuda_runtime_api.h>

#include "runtime/check.h"

namespace flatshard {

// Returns whether the error says that the device has failed in work enqueued earlier. Every later call of
// CUDA in this process returns the same error, wherever the cause is.
bool is_device_fault(cudaError_t status);

// The message for the user about an error that the call or launch `what` returned.
std::string describe_cuda_error(cudaError_t status, const std::string& what);

inline void cuda_check(cudaError_t status, const char* what,
                       std::source_location where = std::source_location::current()) {
  if (status != cudaSuccess) [[unlikely]]
    fail(describe_cuda_error(status, what), where);
}

}  // namespace flatshard
