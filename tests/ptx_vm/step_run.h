#pragma once
// A training step on the machine: bf16 compute, fp32 masters, AdamW, two micro-steps of one sequence on one
// rank. Measures its costs, and the least bytes of the formulas of its kernels, except matrix products.

#include "bench/random_tokens.h"
#include "ptx_vm/counts.h"
#include "train/step/training_runtime.h"

namespace flatshard::ptx_vm {

class StepRun {
 public:
  // Runs the first step.
  StepRun(const ModelConfig& model, int64_t tokens, const LoraConfig& lora = {},
          const QuantConfig& quant = {});

  Counts count();        // costs of the next step
  double least_bytes();  // least bytes of a step; excludes adapters

 private:
  static constexpr int64_t kMicroSteps = 2;

  void step();

  World world_;
  RunSetup setup_;
  bench::RandomTokens tokens_;
  Data data_;
  TrainingRuntime runtime_;
  int64_t steps_ = 0;
};

}  // namespace flatshard::ptx_vm
