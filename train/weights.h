#pragma once
// The weights of a run as a whole: their fingerprint.

#include <string>

#include "train/engine.h"

namespace flatshard {

// SHA-256 of all fp32 masters (of frozen parameters, their values as fp32), parameter by parameter in the
// order of the model, row-major, little-endian. To be called by all ranks between steps; rank 0 gets the
// hash, the others "".
std::string weights_hash(Engine& engine);

}  // namespace flatshard
