#pragma once
// Which device a program runs on: "cpu", "cuda", or "auto", which is a GPU where there is one.

#include <string>

#include "runtime/device.h"

namespace flatshard {

// For the rank `local_rank` of its host; ranks take GPUs in turn. `option` is what the person calls the
// choice. An Error where "cuda" cannot be; where "auto" leaves a build with CUDA on the CPU, a line says why.
Device choose_device(const std::string& option, const std::string& choice, int local_rank = 0);

}  // namespace flatshard
