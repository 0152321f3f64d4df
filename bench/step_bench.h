#pragma once
// Times training steps (forward, backward, norm, clip, AdamW) of well-known model shapes on one rank and
// device, with random weights and tokens, against the least time that the ceilings of the machine allow:
//   floor = operations of the matrix products and of causal attention / matrix peak of the dtype
//         + bytes / copy bandwidth
// The bytes are the traffic of AdamW, one write and one read of each gradient and two reads of each weight in
// the compute dtype for each micro-step. Both ceilings are measured in this process, between the steps.
// Traced steps follow the timed ones: they show how long the update takes, and on a GPU each op.

#include <memory>
#include <string>
#include <vector>

#include "bench/ceiling.h"
#include "bench/measure.h"
#include "bench/step_ops.h"
#include "comm/world.h"

namespace flatshard::bench {

// The parameters that a step trains. first_norm trains only the first norm of the first block: the forward
// pass and all gradients of activations, which adapters need, without the gradient of a matrix.
enum class Trained { all, adapters, first_norm };

struct StepOptions {
  std::string model = "gpt2-124m";  // one of step_models()
  std::string compute = "bf16";     // bf16 or fp32
  int64_t batch = 4, seq_len = 64;  // sequences of a micro-step, and their tokens
  int64_t micro_steps = 1;          // micro-steps of an update
  std::vector<std::string> keys{};  // config keys of the run: "train.recompute=selective"
  Device device = Device::cpu();
  Trained trained = Trained::all;
  double lora_dropout = 0;

  bool operator==(const StepOptions&) const = default;
};

struct StepResult {
  std::string model, compute;
  int64_t seq_len = 0, tokens = 0;  // tokens per step
  int64_t micro_steps = 1;
  std::vector<std::string> keys{};
  Spread seconds{};
  int steps = 0;
  bool disturbed = false;      // other programs used the processors in most steps
  double operations = 0;       // operations per step, with half of the attention scores (causal)
  double operations_full = 0;  // operations per step, with all attention scores
  double bytes = 0;
  double matrix_rate = 0, copy_rate = 0;  // medians of the samples between the steps
  int64_t memory_bytes = 0;               // memory planned by the run
  double loss = 0;                        // loss after the last step
  double update_seconds = 0;              // part of a step after its micro-steps; 0: not known
  std::vector<StepOp> ops{};              // only on a GPU

  int64_t batch() const { return tokens / seq_len / micro_steps; }
  double tokens_per_second() const { return static_cast<double>(tokens) / seconds.median; }
  double tokens_per_second_without_update() const {
    return static_cast<double>(tokens) / (seconds.median - update_seconds);
  }
  double floor_seconds() const { return operations / matrix_rate + bytes / copy_rate; }
  // Fractions of the measured matrix peak.
  double mfu_causal() const { return operations / seconds.median / matrix_rate; }
  double mfu_full() const { return operations_full / seconds.median / matrix_rate; }
};

std::vector<std::string> step_models();

// A line with the planned step and its memory; needs no device.
std::string step_plan(const StepOptions& options);

struct StepSample {
  double seconds;
  double processor_seconds;  // sum over all threads
  bool quiet;                // whether the threads waited for a processor during less than 2 % of it
  double loss;
};

// A training run on a `world` of one rank. `world` and `ceilings` must outlive the object.
class StepBench {
 public:
  StepBench(const StepOptions& options, World& world, Ceilings& ceilings);
  ~StepBench();

  // Trains for `seconds` and measures the steps. The first call starts with warm-up steps.
  StepResult measure(double seconds);
  // Measures one step. The first call starts with warm-up steps.
  StepSample sample();

 private:
  struct Training;
  std::unique_ptr<Training> training_;
};

std::string step_header(const std::string& model);
std::string step_line(const StepResult& result);

}  // namespace flatshard::bench
