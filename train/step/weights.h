#pragma once
// The hash of all weights of a run.

#include <string>

#include "comm/world.h"
#include "train/step/engine.h"

namespace flatshard {

// The SHA-256 of the concatenated hex SHA-256 digests of all parameters, in model order. A parameter's digest
// covers its fp32 masters or, if frozen, its values as fp32 or its bytes, row-major and little-endian.
// Collective, between steps; returns the hash on rank 0 and "" on the others.
std::string weights_hash(Engine& engine, World& world);

}  // namespace flatshard
