// The identity of CUDA devices, and the device of this process.

#include <atomic>
#include <cstdlib>

#include "runtime/cuda.h"
#include "runtime/cuda_check.h"

namespace flatshard::cuda {
namespace {

std::atomic<int> selected{-1};

// A context has 8 hardware queues by default, and streams that share one wait for each other: a gather would
// start only once the products launched before it have started. With the streams of NCCL and of pipeline
// stages, a run has more than 8; 32 queues are the maximum. CUDA reads the variable before it creates the
// context, and every program counts its GPUs before it uses one.
void request_queues() { setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0); }

cudaDeviceProp properties_of(int index) {
  cudaDeviceProp properties;
  cuda_check(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
  return properties;
}

}  // namespace

int device_count() {
  request_queues();
  int count = 0;
  // A missing GPU or driver is a valid result, not an error; clear the error state it leaves.
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::string why_no_device() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  cudaGetLastError();
  return cudaGetErrorString(status);
}

std::string device_uuid(int index) {
  constexpr char kDigits[] = "0123456789abcdef";
  const cudaDeviceProp properties = properties_of(index);
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const unsigned byte = static_cast<unsigned char>(properties.uuid.bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string device_name(int index) { return properties_of(index).name; }

int multiprocessors(int index) { return properties_of(index).multiProcessorCount; }

int64_t free_bytes(int index) {
  cuda_check(cudaSetDevice(index), "cudaSetDevice");
  size_t free_bytes = 0, total_bytes = 0;
  cuda_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return static_cast<int64_t>(free_bytes);
}

void select_device(Device device) {
  cuda_check(cudaSetDevice(device.index), "cudaSetDevice");
  selected = device.index;
}

bool is_selected() { return selected >= 0; }

void use_selected_device() { cuda_check(cudaSetDevice(selected), "cudaSetDevice"); }

}  // namespace flatshard::cuda
