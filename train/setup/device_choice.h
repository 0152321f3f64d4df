#pragma once
// The device a program runs on: the CPU, a GPU, or by default a GPU if there is one.

#include <string>

#include "runtime/device.h"
#include "train/config/config.h"

namespace flatshard {

// The CPU, or the GPU with this number (comm/gpu_place.h). `option` is the option's name for errors. An Error
// if "cuda" is not available.
Device choose_device(const std::string& option, DeviceChoice choice, int gpu = 0);
// The same for a plan, which needs neither a GPU nor a build with CUDA: without them, "cuda" is the GPU that
// rank `local_rank` of a host would use.
Device planned_device(DeviceChoice choice, int gpu = 0, int local_rank = 0);
// Why this build and process cannot compute on a GPU; "" if they can.
std::string why_no_gpu();
// Why "auto" chose the CPU, for a message in builds with CUDA on machines with a GPU; otherwise "".
std::string why_on_cpu(DeviceChoice choice);

}  // namespace flatshard
