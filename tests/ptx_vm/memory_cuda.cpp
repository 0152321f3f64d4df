// The CUDA runtime on the machine: memory and copies. A copy runs at the call.

#include <cstring>

#include <cuda_runtime_api.h>

#include "runtime/check.h"
#include "tests/ptx_vm/memory.h"
#include "tests/ptx_vm/registry.h"
#include "tests/ptx_vm/state.h"

namespace flatshard::ptx_vm {
namespace {

template <class Work>
cudaError_t attempt(Work&& work) {
  return static_cast<cudaError_t>(guarded(work));
}

// Host memory that was not allocated here is taken on trust.
void check_range(const void* data, uint64_t bytes, const char* what) {
  const auto address = reinterpret_cast<uint64_t>(data);
  const Allocation* a = heap().find(address);
  if (!a) return;
  check(a->is_live, what, " touches ", a->name, ", which is freed");
  check(bytes <= a->end() - address, what, " of ", bytes, " bytes from byte ", address - a->begin, " of ",
        a->name);
}

void copy(void* to, const void* from, uint64_t bytes) {
  check_range(to, bytes, "a copy");
  check_range(from, bytes, "a copy");
  std::memmove(to, from, bytes);
  heap().copy_marks(to, from, bytes);
}

void fill(void* data, int value, uint64_t bytes) {
  check_range(data, bytes, "a memset");
  std::memset(data, value, bytes);
  heap().mark_written(data, bytes);
}

cudaError_t release(void* data) {
  return attempt([&] { check(!data || heap().release(data), "free of memory that is not allocated"); });
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** data, size_t bytes) {
  *data = nullptr;
  if (const int error = outcome(cudaSuccess)) return static_cast<cudaError_t>(error);
  size_t free_bytes = 0, total = 0;
  cudaMemGetInfo(&free_bytes, &total);
  if (bytes > free_bytes)
    return static_cast<cudaError_t>(outcome(cudaErrorMemoryAllocation, "out of memory"));
  if (bytes) *data = heap().allocate(Allocation::Kind::device, bytes);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** data, size_t bytes, cudaStream_t) { return cudaMalloc(data, bytes); }
cudaError_t cudaFree(void* data) { return release(data); }
cudaError_t cudaFreeAsync(void* data, cudaStream_t) { return release(data); }

cudaError_t cudaMallocHost(void** data, size_t bytes) {
  return attempt([&] { *data = heap().allocate(Allocation::Kind::pinned, bytes); });
}
cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) { return cudaMallocHost(data, bytes); }
cudaError_t cudaFreeHost(void* data) { return release(data); }
cudaError_t cudaHostRegister(void* data, size_t bytes, unsigned) {
  return attempt([&] { heap().add_registered(data, bytes); });
}
cudaError_t cudaHostUnregister(void* data) { return release(data); }
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  *device = host;
  return static_cast<cudaError_t>(outcome(cudaSuccess));
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* data) {
  *attributes = {};
  const Allocation* a = heap().find(reinterpret_cast<uint64_t>(data));
  const bool is_device = a && (a->kind == Allocation::Kind::device || a->kind == Allocation::Kind::variable);
  attributes->type = !a ? cudaMemoryTypeUnregistered : is_device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  if (a) attributes->devicePointer = const_cast<void*>(data);
  if (!is_device) attributes->hostPointer = const_cast<void*>(data);
  return static_cast<cudaError_t>(outcome(cudaSuccess));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t) {
  return attempt([&] { copy(to, from, bytes); });
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return attempt([&] { copy(to, from, bytes); });
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind, cudaStream_t) {
  return attempt([&] {
    for (size_t row = 0; row < height; ++row)
      copy(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
  });
}
cudaError_t cudaMemsetAsync(void* data, int value, size_t bytes, cudaStream_t) {
  return attempt([&] { fill(data, value, bytes); });
}
cudaError_t cudaMemset(void* data, int value, size_t bytes) {
  return attempt([&] { fill(data, value, bytes); });
}

cudaError_t cudaGetSymbolAddress(void** data, const void* symbol) {
  uint64_t bytes = 0;
  return attempt([&] {
    *data = variable_of(symbol, &bytes);
    check(*data != nullptr, "no device variable is registered here");
  });
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                               cudaMemcpyKind) {
  return attempt([&] {
    uint64_t size = 0;
    void* data = variable_of(symbol, &size);
    check(data != nullptr, "no device variable is registered here");
    copy(static_cast<char*>(data) + offset, from, bytes);
  });
}
}

}  // namespace flatshard::ptx_vm
