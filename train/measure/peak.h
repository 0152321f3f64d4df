#pragma once
// The reference rate of MFU: floating-point operations per second of matrix products in the compute dtype,
// measured at startup on the run's device by all ranks at once.

#include "comm/world.h"
#include "runtime/device.h"
#include "runtime/dtype.h"

namespace flatshard {

// The sum of the rates of all ranks. Takes about a fifth of a second, or less for a run of few operations:
// the measurement computes no more than that, but one product at least.
double matrix_peak(World& world, Device device, DType compute, bool tf32, double operations_of_run);

}  // namespace flatshard
