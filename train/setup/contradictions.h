#pragma once
// Values of a config that are each valid alone, but not together. Each function adds all problems it finds.

#include "runtime/problems.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// Between keys of the config alone.
void check_together(const Config& config, Problems& problems);

// The functions below also need what the setup derives from the config: the batch, the model or the device.

// Sizes that are too large together. Needs batch and model.
void check_sizes(const RunSetup& setup, Problems& problems);
// Keys that only other losses read, and data that losses of answers cannot have. Needs the model.
void check_loss(const RunSetup& setup, Problems& problems);
// The coefficients of an update are fp32 (kernels/adamw.h); AdamW's first update has the largest ones. Needs
// the batch.
void check_learning_rate(const RunSetup& setup, Problems& problems);
// CUDA graphs capture no host work and no changing shapes. Sets setup.why_no_graphs, which is a problem only
// with run.cuda_graphs = true. Needs batch, model, pipeline stages and device.
void check_graphs(RunSetup& setup, Problems& problems);
// What mixtures of experts do not support yet. Needs model, pipeline stages and device.
void check_experts(const RunSetup& setup, Problems& problems);
// What parallel.expert_ranks needs of ranks, units and sums. Needs model, batch, units and hosts.
void check_expert_ranks(const RunSetup& setup, Problems& problems);
// The one-pass kernel of attention supports some types and models. Needs model and device.
void check_attention(const RunSetup& setup, Problems& problems);

}  // namespace flatshard
