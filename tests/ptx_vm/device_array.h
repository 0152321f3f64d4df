#pragma once
// Device memory of a test, from host values and back.

#include <vector>

#include <cuda_runtime_api.h>

namespace flatshard::ptx_vm {

template <class T>
struct DeviceArray {
  explicit DeviceArray(size_t n) : size(n) {
    void* memory = nullptr;
    cudaMalloc(&memory, n * sizeof(T));
    data = static_cast<T*>(memory);
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    cudaMemcpy(data, values.data(), size * sizeof(T), cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();  // the copy has read the values, but other streams may not count on the result
  }
  ~DeviceArray() { cudaFree(data); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  // Empty where a launch failed before.
  std::vector<T> values() const {
    std::vector<T> all(size);
    if (cudaMemcpy(all.data(), data, size * sizeof(T), cudaMemcpyDeviceToHost) != cudaSuccess) all.clear();
    return all;
  }

  T* data = nullptr;
  size_t size;
};

}  // namespace flatshard::ptx_vm
