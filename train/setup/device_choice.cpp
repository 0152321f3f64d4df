#include "train/setup/device_choice.h"

#include <filesystem>
#include <fstream>

#include "build_config.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

// Why this build cannot use GPUs, with the remedy; "" if it can.
std::string obstacle_in_build() {
  if (!kCudaBuilt)
    return "this build has no CUDA backend: rebuild with -DFLATSHARD_CUDA=ON where nvcc is installed";
  const std::string missing = kOpsWithoutCuda;
  return missing.empty() ? "" : "these ops have no CUDA kernel in this build: " + missing;
}

// Whether there is an NVIDIA GPU, even if no process can use it.
bool machine_has_gpu() {
  constexpr char kVendor[] = "0x10de";
  std::error_code none;
  if (fs::exists("/proc/driver/nvidia", none) || fs::exists("/dev/dxg", none)) return true;
  for (const fs::directory_entry& device : fs::directory_iterator("/sys/bus/pci/devices", none)) {
    std::string vendor;
    std::ifstream(device.path() / "vendor") >> vendor;
    if (vendor == kVendor) return true;
  }
  return false;
}

}  // namespace

std::string why_no_gpu() {
  if (const std::string why_not = obstacle_in_build(); !why_not.empty()) return why_not;
  if (cuda_device_count() == 0)
    return str("this process can use no GPU (", why_no_cuda_device(),
               "): check nvidia-smi and CUDA_VISIBLE_DEVICES");
  return "";
}

Device choose_device(const std::string& option, DeviceChoice choice, int gpu) {
  if (choice == DeviceChoice::cpu) return Device::cpu();
  const std::string why_not = why_no_gpu();
  if (why_not.empty()) return Device::cuda(gpu);
  check(choice == DeviceChoice::automatic, option, " = \"cuda\", but ", why_not, "; or choose \"cpu\"");
  return Device::cpu();
}

Device planned_device(DeviceChoice choice, int gpu, int local_rank) {
  if (choice != DeviceChoice::cpu && why_no_gpu().empty()) return Device::cuda(gpu);
  return choice == DeviceChoice::cuda ? Device::cuda(local_rank) : Device::cpu();
}

std::string why_on_cpu(DeviceChoice choice) {
  const std::string why_not =
      kCudaBuilt && choice == DeviceChoice::automatic && machine_has_gpu() ? why_no_gpu() : "";
  return why_not.empty() ? "" : "on the CPU, because " + why_not;
}

}  // namespace flatshard
