#include <cuda_runtime_api.h>

#include "ptx_vm/tests/device_array.h"

namespace flatshard::ptx_vm {

void* allocate_on_device(size_t bytes) {
  void* data = nullptr;
  cudaMalloc(&data, bytes);
  return data;
}

void free_on_device(void* data) { cudaFree(data); }

void copy_to_device(void* to, const void* from, size_t bytes) {
  if (bytes) cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice);
  // A copy from pageable memory may still be in progress, and other streams do not wait.
  cudaDeviceSynchronize();
}

bool copy_from_device(void* to, const void* from, size_t bytes) {
  return cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost) == cudaSuccess;
}

}  // namespace flatshard::ptx_vm
