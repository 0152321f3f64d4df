#pragma once
// Times whole training steps (forward, backward, norm, clip, AdamW) of well-known model shapes on one rank
// and device, with random weights and tokens, beside the time below which this machine allows nothing:
//   floor = operations of the matrix products and of causal attention / matrix peak of the dtype
//         + bytes / copy bandwidth
// where the bytes are AdamW's, one write and one read of every gradient, and two reads of every weight in the
// dtype of compute. Both ceilings are measured in this process, between the steps.

#include <memory>
#include <string>
#include <vector>

#include "bench/ceiling.h"
#include "bench/measure.h"
#include "comm/world.h"

namespace flatshard::bench {

struct StepOptions {
  std::string model = "gpt2-124m";  // one of step_models()
  std::string compute = "bf16";     // or fp32
  int64_t batch = 4, seq_len = 64;
  bool recompute = false;  // activations in the backward pass
  Device device = Device::cpu();

  bool operator==(const StepOptions&) const = default;
};

struct StepResult {
  std::string model, compute;
  int64_t seq_len = 0, tokens = 0;  // of a step
  Spread seconds{};
  int steps = 0;
  bool disturbed = false;      // other programs had the processors in most steps
  double operations = 0;       // of a step, with causal attention counted by half
  double operations_full = 0;  // or in full
  double bytes = 0;
  double matrix_rate = 0, copy_rate = 0;  // medians of the samples between the steps
  int64_t memory_bytes = 0;               // that the run has planned
  double loss = 0;                        // after the last step, to show that it learns

  double tokens_per_second() const { return static_cast<double>(tokens) / seconds.median; }
  double floor_seconds() const { return operations / matrix_rate + bytes / copy_rate; }
  // Shares of the measured matrix peak.
  double mfu_causal() const { return operations / seconds.median / matrix_rate; }
  double mfu_full() const { return operations_full / seconds.median / matrix_rate; }
};

std::vector<std::string> step_models();

// A model in training. `world` is one rank, and outlives it as the ceilings do.
class StepBench {
 public:
  StepBench(const StepOptions& options, World& world, Ceilings& ceilings);
  ~StepBench();

  // Goes on training for so long; the first time steps that do not count come before.
  StepResult measure(double seconds);

 private:
  struct Training;
  std::unique_ptr<Training> training_;
};

std::string step_header(const std::string& model);
std::string step_line(const StepResult& result);

}  // namespace flatshard::bench
