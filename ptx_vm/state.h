#pragma once
// The error state shared by the CUDA runtime functions. Codes are cudaError_t.

#include <string>

#include "runtime/check.h"

namespace flatshard::ptx_vm {

struct Queue;

// Stores the result of a call as the last error (0: none) and returns it. After a finding, every call fails
// with the finding's code instead.
int outcome(int code, const std::string& text = "");
int last_error(bool reset);
const std::string& last_error_text();

// An error with a specific code; an ordinary Error becomes cudaErrorInvalidValue.
struct CallError : Error {
  CallError(int c, const std::string& text, std::source_location at = std::source_location::current())
      : Error(text, at), code(c) {}
  int code;
};

// Runs the body of a CUDA function and converts an exception into the result.
int guarded(void (*work)(void*), void* data);
template <class Work>
int guarded(Work&& work) {
  return guarded([](void* data) { (*static_cast<std::remove_reference_t<Work>*>(data))(); }, &work);
}

// The ticks that matrix products have taken, for the times of events.
uint64_t& product_ticks();

// The queue of a cudaStream_t. An invalid stream is an error.
Queue& queue_of(const void* stream);

}  // namespace flatshard::ptx_vm
