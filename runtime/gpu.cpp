#include "runtime/gpu.h"

#include "build_config.h"
#include "runtime/cuda.h"

namespace flatshard {

std::vector<std::string> visible_gpus() {
  std::vector<std::string> gpus;
  if constexpr (kCudaBuilt)
    for (int index = 0; index < cuda_device_count(); ++index) gpus.push_back(cuda::device_uuid(index));
  return gpus;
}

std::string gpu_name(Device device) {
  if constexpr (kCudaBuilt)
    if (device.is_cuda()) return cuda::device_name(device.index);
  return "";
}

int multiprocessors(Device device) {
  if constexpr (kCudaBuilt)
    if (device.is_cuda()) return cuda::multiprocessors(device.index);
  return 0;
}

int64_t free_gpu_bytes(Device device) {
  if constexpr (kCudaBuilt)
    if (device.is_cuda()) return cuda::free_bytes(device.index);
  return 0;
}

void select_gpu(Device device) {
  if constexpr (kCudaBuilt)
    if (device.is_cuda()) cuda::select_device(device);
}

}  // namespace flatshard
