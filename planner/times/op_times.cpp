#include "planner/times/op_times.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string_view>

#include "runtime/check.h"

namespace flatshard {
namespace {

// Constants of matrix products, which meet 14 products of an H100 and 30 of two traced steps of a model on an
// H200 (bench/results/h200.md) within 8 % (root mean square): the part of the published peak that products
// reach at most, the part that they would reach at infinite depth without that limit, and the depth at which
// they reach half of it.
constexpr double kLargestProducts = 0.74, kInDepth = 0.9, kHalfDepth = 256;
// The product that makes the gradient of the input is faster by this factor.
constexpr double kOfInputGradient = 1.06;
// The part of the shorter of two times, of computing and of moving operands and result, that the longer one
// does not hide.
constexpr double kExposedMemory = 0.17;
// If there are few tiles, the library divides the depth into parts, of at least this depth on average.
constexpr double kDepthOfPart = 2048;
// Tiles of the library, with their relative rates: a smaller tile reads its operands more often.
struct Tile {
  double rows, columns, rate;
};
constexpr Tile kTiles[] = {{128, 256, 1.0}, {128, 128, 0.97}, {64, 128, 0.95}, {64, 64, 0.7}};
// The project's kernel has one tile, and does not divide the depth. Its rate was never timed: assumed.
constexpr Tile kOwnTiles[] = {{128, 256, 0.95}};
constexpr int64_t kOwn = 32;  // in the flags of a product: kFlagOwn of kernels/gemm.h

// The part of the matrix peak that attention reaches on GPUs before Hopper, with heads of 128
// (FlashAttention-2's published rates on A100: 0.55 to 0.65 and 0.45 to 0.55, without a causal mask).
constexpr double kAttentionForward = 0.5, kAttentionBackward = 0.4;
constexpr double kHalfHead = 64;  // extent of heads at which half of these rates is lost, relative to 128

// The time that an op takes besides its products and bytes: the time between two events around it, less the
// time that the events of all ops add to a step.
constexpr double kStartSeconds = 2e-6, kStartOfProduct = 4.5e-6;
// Constants of memory-bound ops: the part of the published bandwidth that they reach, and the time that their
// further kernels add to the start. They are rounded, from cases of an H100 and traced steps on an H200
// (bench/results/h100.md, h200.md); qk_norm_backward is assumed.
struct MemoryOp {
  std::string_view name;
  double share, more_seconds = 0;
};
constexpr double kShareOfMemory = 0.85;
constexpr MemoryOp kMemoryOps[] = {
    {"copy", 0.9},
    {"fill", 0.9},
    {"rmsnorm_forward", 0.77},
    {"layernorm_forward", 0.77},
    {"rmsnorm_backward", 0.76, 10e-6},  // sums over rows take a second kernel
    {"layernorm_backward", 0.76, 10e-6},
    {"bias_backward", 0.76, 6e-6},
    {"qk_norm_forward", 0.6},
    {"qk_norm_backward", 0.35, 10e-6},
    {"rope_forward", 0.63},
    {"rope_backward", 0.63},
    {"gather_rows", 0.75},
    {"scatter_rows", 0.75},
    {"embedding_forward", 0.8},
    {"embedding_backward", 0.6, 30e-6},  // it sorts the tokens first
    {"cross_entropy_forward", 0.75},
    {"cross_entropy_backward", 0.64},
    {"dropout_forward", 0.69},
    {"dropout_backward", 0.69},
    {"dequantize_four_bit", 0.78},
    {"quantize_four_bit", 0.44},
    {"adamw8bit", 0.45},  // codes take arithmetic
};
// The share of the multiprocessors that such an op takes from a product beside it: assumed.
constexpr double kProcessorsOfMemoryOps = 0.3;

// The distance of costs at which a measured factor counts half: a ratio of 1.3.
constexpr double kNear = 0.07;

double attention_seconds(const GpuModel& gpu, const OpCall& op, int64_t seq_len, double matrix_rate) {
  if (gpu.multiprocessors >= 114 && gpu.matrix_tflops >= 700)
    return hopper_attention_seconds(op, seq_len, matrix_rate, gpu.multiprocessors);
  const double most = op.name == "attention_forward" ? kAttentionForward : kAttentionBackward,
               head = static_cast<double>(op.shape[4]);
  return attention_flops(op, seq_len) /
         (matrix_rate * most * std::min(1.0, 2 * head / (head + kHalfHead) * 0.75));
}

MemoryOp memory_op(const OpCall& op) {
  const auto found = std::find_if(std::begin(kMemoryOps), std::end(kMemoryOps),
                                  [&](const MemoryOp& of) { return of.name == op.name; });
  return found == std::end(kMemoryOps) ? MemoryOp{op.name, kShareOfMemory} : *found;
}

double matrix_rate(const Cluster& c, const OpCall& op) {
  const bool tf32 = op.name == "gemm" && (op.shape[3] & 8) != 0;
  const double peak = published_matrix_rate(c.gpu, op.dtype, tf32);
  // At less power the clock falls: by the cube root at first, as voltage falls with it.
  const double power =
      c.power_watts > 0 && c.gpu.watts > 0 ? std::min(1.0, c.power_watts / c.gpu.watts) : 1.0;
  return peak * std::cbrt(power);
}

OpTime published_time(const Cluster& cluster, const OpCall& op, int64_t seq_len, const OpProfile& profile) {
  const double memory_rate = cluster.gpu.memory_gbps * 1e9;
  if (op.path != OpCall::Path::none) {
    const double rate = cluster.host_gbps * 1e9;
    return {.seconds = op.bytes / rate + kStartSeconds, .memory = rate / memory_rate};
  }
  const MemoryOp kind = memory_op(op);
  double seconds = kStartSeconds + kind.more_seconds + profile.seconds_per_op;
  double memory_seconds = op.bytes / (memory_rate * kind.share);
  if (is_product(op.name)) {
    seconds += kStartOfProduct - kStartSeconds;
    const double share = product_efficiency(cluster.gpu, op.shape[0], op.shape[1], op.shape[2], op.shape[3],
                                            std::max<int64_t>(1, op.shape[4]));
    const double products = op.flops / (matrix_rate(cluster, op) * share * profile.products);
    seconds += std::max(products, memory_seconds) + kExposedMemory * std::min(products, memory_seconds);
    return {.seconds = seconds, .processors = 1, .memory = std::min(1.0, op.bytes / (seconds * memory_rate))};
  }
  if (is_attention(op.name)) {
    const double products =
        attention_seconds(cluster.gpu, op, seq_len, matrix_rate(cluster, op)) / profile.attention;
    seconds += std::max(products, memory_seconds);
    return {.seconds = seconds, .processors = 1, .memory = std::min(1.0, op.bytes / (seconds * memory_rate))};
  }
  memory_seconds *= profile.other_bytes;
  seconds += memory_seconds;
  return {.seconds = seconds,
          .processors = kProcessorsOfMemoryOps,
          .memory = std::min(1.0, memory_seconds / seconds)};
}

}  // namespace

bool is_product(std::string_view op) {
  return op == "gemm" || op == "four_bit_product" || op == "grouped_product";
}
bool is_attention(std::string_view op) { return op.starts_with("attention"); }

double work_of(const OpCall& op, int64_t seq_len) {
  if (is_product(op.name)) return op.flops;
  return is_attention(op.name) ? attention_flops(op, seq_len) : op.bytes;
}

OpCost cost_of(const OpCall& op, int64_t seq_len) {
  const double work = work_of(op, seq_len);
  return {work, work / op.bytes};
}

double measured_factor(const std::vector<MeasuredOp>& measured, const OpCall& op, int64_t seq_len) {
  const OpCost cost = cost_of(op, seq_len);
  double sum = 0, weights = 0;
  for (const MeasuredOp& m : measured) {
    if (m.op != op.name || m.dtype != str(op.dtype)) continue;
    const double far = std::log(cost.work / m.work), other = std::log(cost.intensity / m.intensity);
    const double weight = 1 / (kNear + far * far + other * other);
    sum += weight * std::log(m.factor);
    weights += weight;
  }
  return weights > 0 && std::isfinite(sum) ? std::exp(sum / weights) : 1;
}

double least_product_factor(const std::vector<MeasuredOp>& measured) {
  double least = 1;
  for (const MeasuredOp& m : measured)
    if (is_product(m.op)) least = std::min(least, m.factor);
  return least;
}

double most_of_matrix_peak() { return kLargestProducts; }

double product_efficiency(const GpuModel& gpu, int64_t M, int64_t N, int64_t K, int64_t flags,
                          int64_t segments) {
  double best = 0;
  const bool own = (flags & kOwn) != 0;
  for (const Tile& tile : own ? std::span<const Tile>(kOwnTiles) : std::span<const Tile>(kTiles)) {
    const auto groups = static_cast<double>(segments);
    const double tiles = groups * std::ceil(static_cast<double>(M) / groups / tile.rows) *
                         std::ceil(static_cast<double>(N) / tile.columns);
    const double most_parts = own ? 1 : std::max(1.0, static_cast<double>(K) / kDepthOfPart);
    const double parts = std::clamp(std::floor(gpu.multiprocessors / tiles), 1.0, most_parts);
    const double depth = static_cast<double>(K) / parts,
                 waves = std::ceil(tiles * parts / gpu.multiprocessors);
    const double used = static_cast<double>(M) * static_cast<double>(N) / (tiles * tile.rows * tile.columns) *
                        tiles * parts / (waves * gpu.multiprocessors);
    best = std::max(best, tile.rate * used * depth / (depth + kHalfDepth));
  }
  const bool of_input = (flags & 3) == 0;
  const double most = kLargestProducts * (own ? kOwnTiles[0].rate : 1.0);
  return std::min(most, kInDepth * best) * (of_input && !own ? kOfInputGradient : 1.0);
}

OpTime op_time(const Cluster& cluster, const OpCall& op, int64_t seq_len, const OpProfile& profile) {
  if (cluster.cpu) return cpu_op_time(*cluster.cpu, op, seq_len);
  OpTime time = published_time(cluster, op, seq_len, profile);
  if (op.path != OpCall::Path::none) return time;
  const double factor = measured_factor(cluster.measured_ops, op, seq_len);
  time.seconds *= factor;
  time.memory = std::min(1.0, time.memory / factor);
  return time;
}

}  // namespace flatshard
