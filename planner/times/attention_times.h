#pragma once
// The time of attention on a Hopper GPU, whose kernels give each multiprocessor one tile of 128 queries, or
// of 128 keys, at a time.

#include <cstdint>

#include "runtime/recording.h"

namespace flatshard {

// The work of an attention op on sequences of this length, which replaces the documents of one token with
// which a plan counts memory.
double attention_flops(const OpCall& op, int64_t seq_len);

// `matrix_rate` is the published peak.
double hopper_attention_seconds(const OpCall& op, int64_t seq_len, double matrix_rate,
                                double multiprocessors);

}  // namespace flatshard
