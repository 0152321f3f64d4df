#include "train/simulate/op_times.h"

#include <algorithm>
#include <cmath>

#include "train/simulate/cpu_op_times.h"
#include "train/simulate/op_table.h"

namespace flatshard {
namespace {

// Of products: NVIDIA's libraries reach 0.80 of the published peak of an H100 and 0.87 of that of an A100 at
// their best (the table of achievable FLOPS in stas00/ml-engineering); Vidur's tables of measured products
// (microsoft/vidur, data/profiling) have 69 to 76 % at 4,096 tokens. Large products here: 0.80 x 0.95.
constexpr double kLargestProducts = 0.76;
// Depth at which half of that is reached; 36 to 67 % at 256 tokens in the same tables.
constexpr double kHalfDepth = 128;
// The gradients of x and of w have operands in other orders: nothing is published, assumed.
constexpr double kOfInputGradient = 0.97, kOfWeightGradient = 0.93;
// Tiles of the library, and how their rates compare: a smaller tile reads its operands more often.
struct Tile {
  double rows, columns, rate;
};
constexpr Tile kTiles[] = {{128, 256, 1.0}, {128, 128, 0.94}, {64, 128, 0.85}, {64, 64, 0.7}};

// Of attention, the part of the matrix peak: on Hopper the rates that kernels.md expects from the products of
// warpgroups, 0.45 forward and 0.35 backward for heads of 128; half of it for heads of 64, whose exponentials
// take as long as the products; 0.5 and 0.4 with mma.sync on older kinds (FlashAttention-2's published rates
// on A100: 0.55 to 0.65 and 0.45 to 0.55, without a causal mask).
// An H100 measured later: 0.32, 0.49 and 0.60 forward at 1k, 4k and 16k tokens, and 0.22, 0.32 and 0.38
// backward.
constexpr double kAttentionForward = 0.45, kAttentionBackward = 0.35;
constexpr double kOldAttentionForward = 0.5, kOldAttentionBackward = 0.4;
constexpr double kHalfHead = 64;  // extent of heads at which half of these rates is lost, relative to 128

// Ops that memory bounds reach 0.85 of the published bandwidth, a copy and the optimizer 0.9 (an H200 copies
// 4.3 of its 4.8 TB/s), after 2 us. An H100 measured later (bench/results/h100.md): sums and activations
// 0.88, norms 0.8, rotation 0.7, AdamW and Lion 0.87; 8-bit AdamW 0.45, as its codes take arithmetic.
constexpr double kShareOfMemory = 0.85, kShareOfCopies = 0.9, kShareOf8BitAdamw = 0.45, kStartSeconds = 2e-6;
// What such an op takes of the multiprocessors that a product beside it could use: assumed.
constexpr double kProcessorsOfMemoryOps = 0.3;

double attention_share(const GpuModel& gpu, const OpCall& op) {
  const bool hopper = gpu.multiprocessors >= 114 && gpu.matrix_tflops >= 700,
             forward = op.name == "attention_forward";
  const double most = hopper ? (forward ? kAttentionForward : kAttentionBackward)
                             : (forward ? kOldAttentionForward : kOldAttentionBackward);
  const double head = static_cast<double>(op.shape[4]);
  return most * std::min(1.0, 2 * head / (head + kHalfHead) * 0.75);
}

double share_of_memory(const OpCall& op) {
  if (op.name == "adamw8bit") return kShareOf8BitAdamw;
  const bool copies = op.name == "copy" || op.name == "fill" || op.name == "adamw" || op.name == "lion";
  return copies ? kShareOfCopies : kShareOfMemory;
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
  double seconds = kStartSeconds + profile.seconds_per_op;
  double memory_seconds = op.bytes / (memory_rate * share_of_memory(op));
  if (is_product(op.name)) {
    const double share = product_efficiency(cluster.gpu, op.shape[0], op.shape[1], op.shape[2], op.shape[3]);
    const double products = op.flops / (matrix_rate(cluster, op) * share * profile.products);
    seconds += std::max(products, memory_seconds);
    return {.seconds = seconds, .processors = 1, .memory = std::min(1.0, op.bytes / (seconds * memory_rate))};
  }
  if (is_attention(op.name)) {
    const double flops = attention_flops(op, seq_len);
    const double rate = matrix_rate(cluster, op) * attention_share(cluster.gpu, op) * profile.attention;
    seconds += std::max(flops / rate, memory_seconds);
    return {.seconds = seconds, .processors = 1, .memory = std::min(1.0, op.bytes / (seconds * memory_rate))};
  }
  memory_seconds *= profile.other_bytes;
  seconds += memory_seconds;
  return {.seconds = seconds,
          .processors = kProcessorsOfMemoryOps,
          .memory = std::min(1.0, memory_seconds / seconds)};
}

}  // namespace

bool is_product(std::string_view op) { return op == "gemm" || op == "four_bit_product"; }
bool is_attention(std::string_view op) { return op.starts_with("attention"); }

double work_of(const OpCall& op, int64_t seq_len) {
  if (is_product(op.name)) return op.flops;
  return is_attention(op.name) ? attention_flops(op, seq_len) : op.bytes;
}

double attention_flops(const OpCall& op, int64_t seq_len) {
  const auto& [rows, heads, keys, key_heads, head_size, documents, mask] = op.shape;
  if (documents < rows || seq_len <= 1) return op.flops;
  const double T = static_cast<double>(seq_len), window = static_cast<double>(mask - 1);
  double keys_of_query = mask > 0 ? T / 2 : T;
  if (mask > 1 && window < T) keys_of_query = std::min(keys_of_query, window * (1 - window / (2 * T)));
  const double forward = 4.0 * static_cast<double>(rows * heads * head_size) * keys_of_query;
  return op.name == "attention_forward" ? forward : 2.5 * forward;
}

double most_of_matrix_peak() { return kLargestProducts; }

double product_efficiency(const GpuModel& gpu, int64_t M, int64_t N, int64_t K, int64_t flags) {
  double best = 0;
  for (const Tile& tile : kTiles) {
    const double tiles =
        std::ceil(static_cast<double>(M) / tile.rows) * std::ceil(static_cast<double>(N) / tile.columns);
    // Of few tiles the library divides the depth, so that there are enough; a part must be deep itself.
    const double parts = std::clamp(std::floor(gpu.multiprocessors / tiles), 1.0,
                                    std::max(1.0, static_cast<double>(K) / 1024));
    const double depth = static_cast<double>(K) / parts,
                 waves = std::ceil(tiles * parts / gpu.multiprocessors);
    const double used = static_cast<double>(M) * static_cast<double>(N) / (tiles * tile.rows * tile.columns) *
                        tiles * parts / (waves * gpu.multiprocessors);
    best = std::max(best, tile.rate * used * depth / (depth + kHalfDepth));
  }
  const bool of_weight = (flags & 1) != 0, of_input = (flags & 3) == 0;
  return kLargestProducts * best * (of_weight ? kOfWeightGradient : of_input ? kOfInputGradient : 1.0);
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
