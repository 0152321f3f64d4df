// The CUDA runtime on the machine: streams and host functions.

#include <algorithm>

#include <cuda_runtime_api.h>

#include "ptx_vm/capture.h"
#include "ptx_vm/state.h"
#include "ptx_vm/streams.h"

namespace flatshard::ptx_vm {
namespace {

constexpr int kLowest = 0, kHighest = -5;

template <class Work>
cudaError_t attempt(Work&& work) {
  return static_cast<cudaError_t>(guarded(work));
}

}  // namespace

Queue& queue_of(const void* stream) {
  if (stream == cudaStreamLegacy) stream = nullptr;
  Queue* queue = streams().find(stream);
  if (!queue) throw CallError(cudaErrorInvalidResourceHandle, "not a stream, or a destroyed one");
  return *queue;
}

void set_role(void* stream, WorkRole role) { queue_of(stream).role = role; }

extern "C" {

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return attempt([&] {
    *least = kLowest;
    *greatest = kHighest;
  });
}

// As on a GPU, a priority beyond the range is the nearest one in it.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return attempt([&] {
    check(flags == cudaStreamDefault || flags == cudaStreamNonBlocking, "a stream with flags ", flags);
    priority = std::clamp(priority, kHighest, kLowest);
    const WorkRole role = priority == kHighest ? WorkRole::comm : WorkRole::compute;
    *stream = reinterpret_cast<cudaStream_t>(&streams().create(flags == cudaStreamDefault, priority, role));
  });
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, kLowest);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, kLowest);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return attempt([&] {
    check(stream != nullptr, "the default stream cannot be destroyed");
    Queue& queue = queue_of(stream);
    refuse_captured(queue, "cudaStreamDestroy");
    streams().destroy(queue);
  });
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return attempt([&] { *priority = queue_of(stream).priority; });
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return attempt([&] {
    Queue& queue = queue_of(stream);
    refuse_captured(queue, "cudaStreamSynchronize");
    streams().finish(queue.milestone());
  });
}
cudaError_t cudaDeviceSynchronize() {
  return attempt([] {
    refuse_while_capturing();
    streams().finish_all();
  });
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return attempt([&] {
    Queue& queue = queue_of(stream);
    refuse_captured(queue, "cudaStreamQuery");
    if (!streams().poll(queue.milestone()))
      throw CallError(cudaErrorNotReady, "the stream has unfinished work");
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return attempt([&] {
    streams().enqueue(queue_of(stream), "host function",
                      [=](Activity&) { streams().run_host_function([=] { function(data); }); });
  });
}
}

}  // namespace flatshard::ptx_vm
