#pragma once
// What all ranks of a training run must agree on before they start.

#include <string>

#include "comm/world.h"
#include "train/config/config.h"

namespace flatshard {

// Throws on every rank unless all ranks have the same config and the same task ("train", "plan").
void agree_on_config(World& world, Config& config, const std::string& task);

}  // namespace flatshard
