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
// The rows of a grouped product are in several segments, each of which begins with a tile of its own.
double product_efficiency(const GpuModel& gpu, int64_t M, int64_t N, int64_t K, int64_t flags,
                          int64_t segments = 1);

// The work of an attention op on sequences of this length, which replaces the documents of one token with
// which a plan counts memory.
double attention_flops(const OpCall& op, int64_t seq_len);
// The time of attention on a Hopper GPU, whose kernels give each multiprocessor one tile of 128 queries, or
// of 128 keys, at a time. `matrix_rate` is the published peak.
double hopper_attention_seconds(const OpCall& op, int64_t seq_len, double matrix_rate,
                                double multiprocessors);

// The time of an op of a rank on the CPU, from the measured times of ops of the same kind and other shapes.
OpTime cpu_op_time(const CpuRates& rates, const OpCall& op, int64_t seq_len);

// The quantities that distinguish calls of an op: its work, and its work per byte, which for attention stands
// for the length of the sequences.
struct OpCost {
  double work, intensity;
};
OpCost cost_of(const OpCall& op, int64_t seq_len);

// The time of an op relative to its time by published figures: the mean over measured calls of the same op in
// the same dtype, in which nearer calls count more. 1 if there are none.
double measured_factor(const std::vector<MeasuredOp>& measured, const OpCall& op, int64_t seq_len);

// The least factor of a matrix product; 1 if no product was measured to be faster than by published figures.
double least_product_factor(const std::vector<MeasuredOp>& measured);

}  // namespace flatshard
