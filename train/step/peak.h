#pragma once
// What the run's speed is held against: floating-point operations per second in matrix products of the dtype
// of compute, measured on the run's device, here and now, by every rank at the same time.

#include "comm/world.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace flatshard {

// Of all ranks together. Takes about a fifth of a second.
double matrix_peak(World& world, Device device, DType compute, bool tf32);

}  // namespace flatshard
