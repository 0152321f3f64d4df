#pragma once
// The device a program runs on: "cpu", "cuda", or "auto", a GPU if there is one.

#include <string>

#include "runtime/device.h"

namespace flatshard {

// The device of rank `local_rank` on its host; GPUs are assigned round-robin. `option` is the option's name
// for errors. An Error if "cuda" is not available.
Device choose_device(const std::string& option, const std::string& choice, int local_rank = 0);
// The same for a plan, which needs no GPU: without any, "cuda" is the GPU that the rank would use.
Device planned_device(const std::string& option, const std::string& choice, int local_rank = 0);
// Why "auto" chose the CPU, for a message in builds with CUDA; otherwise "".
std::string why_on_cpu(const std::string& choice);

}  // namespace flatshard
