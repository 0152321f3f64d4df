#include "train/measure/gpu_models.h"

#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a GPU is recognized by the exact name that CUDA reports") {
  const auto known = [](const char* device) {
    const GpuModel* const model = gpu_model_of_device(device);
    return std::string(model ? model->name : "");
  };
  CHECK(known("NVIDIA H200") == "h200-141gb");
  CHECK(known("NVIDIA H100 80GB HBM3") == "h100-80gb");
  CHECK(known("NVIDIA H100 PCIe") == "h100-pcie-80gb");
  CHECK(known("NVIDIA A100-PCIE-40GB") == "a100-40gb");
  for (const char* other : {"", "NVIDIA H200 NVL", "NVIDIA GeForce RTX 4090 Laptop GPU", "PTX VM sm_90a"})
    CHECK(known(other) == "");
}

TEST_CASE("the published rate of fp32 products is that of TF32 only where these are allowed") {
  const GpuModel& h200 = *gpu_model_named("h200-141gb");
  CHECK(published_matrix_rate(h200, DType::bf16, false) == 989e12);
  CHECK(published_matrix_rate(h200, DType::f32, true) == 989e12 / 2);
  CHECK(published_matrix_rate(h200, DType::f32, false) == 67e12);
}
