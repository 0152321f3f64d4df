#pragma once
// Device memory for tests, with copies from and to host values.

#include <cstddef>
#include <vector>

namespace flatshard::ptx_vm {

void* allocate_on_device(size_t bytes);
void free_on_device(void* data);
void copy_to_device(void* to, const void* from, size_t bytes);    // synchronous
bool copy_from_device(void* to, const void* from, size_t bytes);  // false if an earlier launch failed

template <class T>
struct DeviceArray {
  explicit DeviceArray(size_t n) : data(static_cast<T*>(allocate_on_device(n * sizeof(T)))), size(n) {}
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    copy_to_device(data, values.data(), size * sizeof(T));
  }
  ~DeviceArray() { free_on_device(data); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  // Returns an empty vector if an earlier launch failed.
  std::vector<T> values() const {
    std::vector<T> all(size);
    if (!copy_from_device(all.data(), data, size * sizeof(T))) all.clear();
    return all;
  }

  T* data;
  size_t size;
};

}  // namespace flatshard::ptx_vm
