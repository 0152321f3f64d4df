#pragma once
// What the CUDA runtime's functions share: the error state of the program. Codes are cudaError_t.

#include <string>

#include "runtime/check.h"

namespace flatshard::ptx_vm {

struct Queue;

// Notes the outcome of a call as the last error (0: none) and gives it back. After a finding every call fails
// with that instead.
int outcome(int code, const std::string& text = "");
int last_error(bool reset);
const std::string& last_error_text();

// An error with a code of its own; other ones are cudaErrorInvalidValue.
struct CallError : Error {
  CallError(int c, const std::string& text, std::source_location at = std::source_location::current())
      : Error(text, at), code(c) {}
  int code;
};

// Runs what launches or touches memory; what it throws becomes the outcome.
int guarded(void (*work)(void*), void* data);
template <class Work>
int guarded(Work&& work) {
  return guarded([](void* data) { (*static_cast<std::remove_reference_t<Work>*>(data))(); }, &work);
}

// The queue of a cudaStream_t. An error where there is none.
Queue& queue_of(const void* stream);

}  // namespace flatshard::ptx_vm
