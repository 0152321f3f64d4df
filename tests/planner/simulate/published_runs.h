#pragma once
// Runs of other trainers whose speed is published, as settings of ours: the data that predictions are held
// against (published_runs_test.cpp).

#include <vector>

#include "planner/simulate/simulated_step.h"
#include "train/config/config.h"

namespace flatshard::test {

struct PublishedRun {
  const char *trainer, *model, *gpu;
  int gpus;
  int64_t layers, hidden, heads, kv_heads, ffn, vocab, seq_len, micro_batch, accumulation;
  Strategy strategy;
  bool recompute;
  double tokens_per_second;  // of a GPU, measured
  bool gated = true;         // llama; otherwise GPT-2
  int64_t stages = 1;
  double watts = 0, node_network_gbps = 0;  // of the GPU; of all cards of a node, in one direction; 0: usual
  int64_t group_size = 0;
};

const std::vector<PublishedRun>& published_runs();

// Tokens per second of a GPU.
double predicted_rate(const PublishedRun& run, const OpProfile& profile);

}  // namespace flatshard::test
