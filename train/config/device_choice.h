#pragma once
// Which device a program runs on: "cpu", "cuda", or "auto", which is a GPU where there is one.

#include <string>

#include "runtime/device.h"

namespace flatshard {

// For the rank `local_rank` of its host; ranks take GPUs in turn. `option` is what the person calls the
// choice. An Error where "cuda" cannot be.
Device choose_device(const std::string& option, const std::string& choice, int local_rank = 0);
// The same for a plan, which takes no GPU: where there is none "cuda" is the one that the rank would have.
Device planned_device(const std::string& option, const std::string& choice, int local_rank = 0);
// Why "auto" is the CPU, to be told where the build has CUDA; else "".
std::string why_on_cpu(const std::string& choice);

}  // namespace flatshard
