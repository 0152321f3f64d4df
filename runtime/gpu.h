#pragma once
// The GPUs that this process can use, and the one that it computes on.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/device.h"

namespace flatshard {

// The identities of the visible GPUs, in CUDA's order: "GPU-" and a UUID, as nvidia-smi prints them. Two
// processes use the same GPU exactly if these are equal, whatever number each gives it.
std::vector<std::string> visible_gpus();

// The name of a GPU, such as "NVIDIA H200"; "" for the CPU.
std::string gpu_name(Device device);

int multiprocessors(Device device);

// The device memory that no process uses; 0 for the CPU.
int64_t free_gpu_bytes(Device device);

// Makes later pinned memory belong to this GPU; does nothing for the CPU. Call it before anything is
// allocated: CUDA would otherwise take memory on the first visible GPU, which another rank may use.
void select_gpu(Device device);

}  // namespace flatshard
