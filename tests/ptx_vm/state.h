#pragma once
// What the CUDA runtime's functions share: the error state of the program. Codes are cudaError_t.

#include <string>

namespace flatshard::ptx_vm {

// Notes the outcome of a call as the last error (0: none) and gives it back. After a finding every call fails
// with that instead.
int outcome(int code, const std::string& text = "");
int last_error(bool reset);
const std::string& last_error_text();

// Runs what launches or touches memory; what it throws becomes the outcome.
int guarded(void (*work)(void*), void* data);
template <class Work>
int guarded(Work&& work) {
  return guarded([](void* data) { (*static_cast<std::remove_reference_t<Work>*>(data))(); }, &work);
}

}  // namespace flatshard::ptx_vm
