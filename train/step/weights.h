#pragma once
// The weights of a run as a whole: their fingerprint.

#include <string>

#include "train/step/engine.h"

namespace flatshard {

// The SHA-256 of each parameter's fp32 masters (of a frozen one, its values as fp32), row-major,
// little-endian; and of all these, as hex digits in the order of the model, once more. To be called by all
// ranks between steps; rank 0 gets the hash, the others "".
std::string weights_hash(Engine& engine);

}  // namespace flatshard
