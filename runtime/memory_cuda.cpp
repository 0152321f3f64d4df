// Memory on a CUDA device, pinned host memory, and copies in stream order.

#include "runtime/cuda.h"
#include "runtime/cuda_check.h"

namespace flatshard::cuda {

void* allocate(Device device, int64_t bytes) {
  select_device(device);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free_bytes = 0, total_bytes = 0;
    cuda_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
    fail(str("out of memory on ", device, ": cannot allocate ", bytes, " bytes, ", free_bytes, " of ",
             total_bytes, " are free"));
  }
  cuda_check(status, "cudaMalloc");
  return data;
}

void release(Device, void* data) noexcept { cudaFree(data); }

void* allocate_pinned(int64_t bytes) {
  use_selected_device();
  void* data = nullptr;
  cuda_check(cudaMallocHost(&data, static_cast<size_t>(bytes)), "cudaMallocHost");
  return data;
}

void release_pinned(void* data) noexcept { cudaFreeHost(data); }

void copy(void* stream, void* dst, const void* src, int64_t bytes) {
  cuda_check(cudaMemcpyAsync(dst, src, static_cast<size_t>(bytes), cudaMemcpyDefault,
                             static_cast<cudaStream_t>(stream)),
             "cudaMemcpyAsync");
}

void fill_bytes(void* stream, void* dst, unsigned char value, int64_t bytes) {
  cuda_check(cudaMemsetAsync(dst, value, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream)),
             "cudaMemsetAsync");
}

}  // namespace flatshard::cuda
