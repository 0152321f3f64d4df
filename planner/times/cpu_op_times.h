#pragma once
// The time of an op of a rank on the CPU, from the measured times of ops of the same kind and other shapes on
// it.

#include "planner/times/op_times.h"

namespace flatshard {

OpTime cpu_op_time(const CpuRates& rates, const OpCall& op, int64_t seq_len);

}  // namespace flatshard
