#pragma once
// The time of an op on its own, and the resources that it uses while it runs.

#include <memory>
#include <string>

#include "planner/machines/cluster.h"
#include "runtime/recording.h"

namespace flatshard {

struct OpTime {
  double seconds = 0;
  double processors = 0, memory = 0;  // the shares of ReplayItem
};

// Corrections of the built-in rates: the factors by which a trainer's kernels differ from the assumptions.
struct OpProfile {
  double products = 1;        // factor of the rate of matrix products
  double attention = 1;       // factor of the rate of attention
  double other_bytes = 1;     // factor of the bytes of memory-bound ops
  double seconds_per_op = 0;  // time of every op beyond the launch
};

// The time and shares of an op on a GPU of a cluster, from published figures and measured ops. `seq_len`
// replaces the documents of one token with which a plan counts memory.
OpTime op_time(const Cluster& cluster, const OpCall& op, int64_t seq_len, const OpProfile& profile = {});

bool is_product(std::string_view op);
bool is_attention(std::string_view op);
// The quantity that the time of an op is proportional to: its flops, or its bytes if memory bounds it.
double work_of(const OpCall& op, int64_t seq_len);
// The part of the matrix peak that the largest products reach.
double most_of_matrix_peak();
// The part of the matrix peak that a product of these extents reaches; `flags` are those of the op "gemm".
double product_efficiency(const GpuModel& gpu, int64_t M, int64_t N, int64_t K, int64_t flags);

}  // namespace flatshard
