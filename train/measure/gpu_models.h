#pragma once
// Published figures of GPUs: the rates that MFU refers to, and those of plans made on machines without them.

#include <cstdint>
#include <string>

#include "runtime/dtype.h"

namespace flatshard {

struct GpuModel {
  const char* name;      // h100-80gb
  int64_t memory_mib;    // memory as nvidia-smi reports it
  double matrix_tflops;  // dense bf16 or fp16 products with fp32 sums; TF32 has half the rate
  double fp32_tflops;    // fp32 rate without tensor cores
  double memory_gbps;
  double link_gbps;  // rate from another GPU of the host, over NVLink if there is one, else PCIe
  double host_gbps;  // rate from host memory, over PCIe
  double multiprocessors;
  double watts;                   // power limit
  const char* device_names = "";  // names that CUDA reports, separated by "|"

  int64_t memory_bytes() const { return memory_mib << 20; }
};

// Null if there is no such GPU.
const GpuModel* gpu_model_named(const std::string& name);
// The model of a CUDA device by its name, such as "NVIDIA H200"; null if it is not known.
const GpuModel* gpu_model_of_device(const std::string& device_name);
// Floating-point operations per second of dense matrix products.
double published_matrix_rate(const GpuModel& gpu, DType compute, bool tf32);
// The known names, separated by commas.
std::string gpu_model_names();

}  // namespace flatshard
