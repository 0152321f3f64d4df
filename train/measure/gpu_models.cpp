#include "train/measure/gpu_models.h"

#include <sstream>

#include "runtime/check.h"

namespace flatshard {
namespace {

// Figures of NVIDIA's data sheets and architecture white papers. If a sheet gives a rate with sparsity, or a
// link's rate in both directions together, the table has half of it.
constexpr GpuModel kGpuModels[] = {
    {"a10-24gb", 23028, 125, 31.2, 600, 32, 32, 72, 150, "NVIDIA A10"},
    {"a100-40gb", 40960, 312, 19.5, 1555, 300, 32, 108, 400, "NVIDIA A100-SXM4-40GB|NVIDIA A100-PCIE-40GB"},
    {"a100-80gb", 81920, 312, 19.5, 2039, 300, 32, 108, 400, "NVIDIA A100-SXM4-80GB|NVIDIA A100 80GB PCIe"},
    {"b200-180gb", 183359, 2250, 75, 8000, 900, 64, 148, 1000, "NVIDIA B200"},
    {"h100-80gb", 81559, 989, 67, 3350, 450, 64, 132, 700, "NVIDIA H100 80GB HBM3"},
    {"h100-pcie-80gb", 81559, 756, 51, 2000, 64, 64, 114, 350, "NVIDIA H100 PCIe"},
    {"h200-141gb", 143771, 989, 67, 4800, 450, 64, 132, 700, "NVIDIA H200"},
    {"l4-24gb", 23034, 121, 30.3, 300, 32, 32, 58, 72, "NVIDIA L4"},
    {"l40s-48gb", 46068, 362, 91.6, 864, 32, 32, 142, 350, "NVIDIA L40S"},
    {"rtx3090-24gb", 24576, 71, 35.6, 936, 32, 32, 82, 350, "NVIDIA GeForce RTX 3090"},
    {"rtx4090-24gb", 24564, 165, 82.6, 1008, 32, 32, 128, 450, "NVIDIA GeForce RTX 4090"},
    {"rtx5090-32gb", 32607, 209, 104.8, 1792, 64, 64, 170, 575, "NVIDIA GeForce RTX 5090"},
    {"rtxa5000-24gb", 24564, 111, 27.8, 768, 32, 32, 64, 230, "NVIDIA RTX A5000"},
    {"rtxa6000-48gb", 49140, 155, 38.7, 768, 32, 32, 84, 300, "NVIDIA RTX A6000"},
};

}  // namespace

const GpuModel* gpu_model_of_device(const std::string& device_name) {
  for (const GpuModel& model : kGpuModels) {
    std::istringstream names(model.device_names);
    for (std::string name; std::getline(names, name, '|');)
      if (name == device_name) return &model;
  }
  return nullptr;
}

double published_matrix_rate(const GpuModel& gpu, DType compute, bool tf32) {
  if (compute != DType::f32) return gpu.matrix_tflops * 1e12;
  return (tf32 ? gpu.matrix_tflops / 2 : gpu.fp32_tflops) * 1e12;
}

const GpuModel* gpu_model_named(const std::string& name) {
  for (const GpuModel& model : kGpuModels)
    if (name == model.name) return &model;
  return nullptr;
}

std::string gpu_model_names() {
  std::string names;
  for (const GpuModel& model : kGpuModels) names += str(names.empty() ? "" : ", ", model.name);
  return names;
}

}  // namespace flatshard
