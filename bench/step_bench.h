#pragma once
// Times whole training steps (forward, backward, norm, clip, AdamW) of the GPT-2 124M shape on one rank,
// beside the time below which this machine allows nothing:
//   floor = operations of the matrix products and of causal attention / matrix peak of the dtype
//         + bytes / copy bandwidth
// where the bytes are AdamW's, one write and one read of every gradient, and two reads of every weight in the
// dtype of compute. Both ceilings are measured in this process, between the steps.

#include <string>
#include <vector>

#include "bench/ceiling.h"
#include "bench/measure.h"
#include "comm/world.h"

namespace flatshard::bench {

struct StepOptions {
  int64_t batch = 4, seq_len = 64;
  double seconds = 10;  // of steps, for each dtype
};

struct StepResult {
  std::string compute;  // fp32, bf16
  int64_t tokens = 0;   // of a step
  Spread seconds{};
  int steps = 0;
  bool disturbed = false;  // other programs had the processors in most steps
  double operations = 0, bytes = 0;
  double matrix_rate = 0, copy_rate = 0;  // medians of the samples between the steps
  double loss = 0;                        // after the last step, to show that it learns

  double tokens_per_second() const { return static_cast<double>(tokens) / seconds.median; }
  double floor_seconds() const { return operations / matrix_rate + bytes / copy_rate; }
};

// `world` is one rank.
StepResult measure_step(const std::string& compute, const StepOptions& options, World& world,
                        Ceilings& ceilings);

std::string step_header();
std::string step_line(const StepResult& result);

}  // namespace flatshard::bench
