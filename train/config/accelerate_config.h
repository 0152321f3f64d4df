#pragma once
// Configuration files of Hugging Face accelerate (`train --accelerate FILE CONFIG`) and its FSDP_*
// environment variables as values of our keys. Every key of such a file is mapped, refused with the key to
// use instead, or explained in a notice. Keys that a file omits have accelerate's defaults, so that a
// published file means the same here.

#include <optional>
#include <string>
#include <vector>

#include "train/config/config.h"

namespace flatshard {

struct AccelerateSettings {
  std::vector<ConfigPreset> presets;
  std::vector<std::string> notices;  // notices for the user, one line each
  std::optional<int> processes;      // the number of ranks that the file is for
};

AccelerateSettings read_accelerate_config(const std::string& path);

// The values that the environment sets, such as FSDP_OFFLOAD_PARAMS=true.
AccelerateSettings accelerate_environment();

}  // namespace flatshard
