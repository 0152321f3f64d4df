#include <algorithm>

#include "planner/times/op_times.h"

namespace flatshard {
namespace {

constexpr double kTile = 128;
// The share of the backward pass in the kernel of keys and values, which computes four of seven products.
constexpr double kProductsOfKeys = 4.0 / 7;

// Constants of a kernel: the part of the matrix peak that its products reach, and the time in which a tile
// begins and ends, in units of a key's time. They are from the cases of an H100 with 1,024 and 16,384 tokens
// (bench/results/h100-2026-11-27/ops-bf16.json); the other 20 cases are within 11 %.
struct Kernel {
  double rate, setup;
};
constexpr Kernel kForward128{0.683, 524}, kForward64{0.524, 719};
constexpr Kernel kBackward128{0.431, 457}, kBackward64{0.307, 358};

// The kernel for the heads of this op. Smaller heads reach less: their exponentials take as long as their
// products.
Kernel kernel_of(const OpCall& op) {
  const auto head = static_cast<double>(op.shape[4]);
  const bool forward = op.name == "attention_forward";
  const Kernel small = forward ? kForward64 : kBackward64, large = forward ? kForward128 : kBackward128;
  if (head <= 64) return {small.rate * head / 64, small.setup};
  const double part = std::min(1.0, (head - 64) / 64);
  return {small.rate + part * (large.rate - small.rate), small.setup + part * (large.setup - small.setup)};
}

bool is_planned(const OpCall& op) { return op.shape[5] >= op.shape[0]; }

double length_of(const OpCall& op, int64_t seq_len) {
  if (is_planned(op)) return static_cast<double>(std::max<int64_t>(seq_len, 1));
  return static_cast<double>(op.shape[0]) / static_cast<double>(op.shape[5]);
}

double flops_of_key(const OpCall& op) {
  const double forward = 4.0 * static_cast<double>(op.shape[4]);
  return op.name == "attention_forward" ? forward : 2.5 * forward;
}

// The keys of a tile, on average and at most; the time of all tiles is in keys as well. The last tiles leave
// multiprocessors idle, on average for half of the time of the longest tile.
struct Keys {
  double mean, most;
};
double time_of_tiles(double tiles, const Keys& keys, double multiprocessors) {
  return std::max(keys.most, tiles / multiprocessors * keys.mean + keys.most / 2);
}

}  // namespace

double attention_flops(const OpCall& op, int64_t seq_len) {
  if (!is_planned(op) || seq_len <= 1) return op.flops;
  const int64_t mask = op.shape[6];
  const double T = static_cast<double>(seq_len), window = static_cast<double>(mask - 1);
  double keys = mask > 0 ? T / 2 : T;
  if (mask > 1 && window < T) keys = std::min(keys, window * (1 - window / (2 * T)));
  return flops_of_key(op) * static_cast<double>(op.shape[0] * op.shape[1]) * keys;
}

double hopper_attention_seconds(const OpCall& op, int64_t seq_len, double matrix_rate,
                                double multiprocessors) {
  const auto rows = static_cast<double>(op.shape[0]), heads = static_cast<double>(op.shape[1]),
             key_heads = static_cast<double>(op.shape[3]), length = length_of(op, seq_len);
  const Kernel kernel = kernel_of(op);
  const double seconds_of_key = kTile * flops_of_key(op) * multiprocessors / (kernel.rate * matrix_rate);
  const double window = op.shape[6] > 1 ? static_cast<double>(op.shape[6] - 1) : length;
  const Keys keys{attention_flops(op, seq_len) / (flops_of_key(op) * rows * heads) + kernel.setup,
                  std::min(length, window) + kernel.setup};
  const double tiles = rows / kTile * heads;
  double time = time_of_tiles(tiles, keys, multiprocessors);
  if (op.name != "attention_forward") {
    // A tile of keys meets the queries of all heads that share it.
    const double sharers = heads / key_heads;
    const double of_keys =
        time_of_tiles(tiles / sharers, {sharers * keys.mean, sharers * keys.most}, multiprocessors);
    time += kProductsOfKeys * (of_keys - time);
  }
  return time * seconds_of_key;
}

}  // namespace flatshard
