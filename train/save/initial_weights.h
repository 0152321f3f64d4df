#pragma once
// A run that begins with published weights: model.init_from names a folder as Hugging Face has it
// (model_folder.h). The model is that of its config.json; its weights become the first values of the masters,
// whatever their dtype. Each rank reads the ranges that it owns, and of the files nothing else; or, with
// parallel.cpu_ram_efficient_loading, rank 0 alone reads, and sends the others one unit at a time.

#include <memory>
#include <string>

#include "comm/world.h"
#include "train/config/run_setup.h"
#include "train/models/companions.h"
#include "train/models/published_weights.h"

namespace flatshard {

// Sets the model's keys of a config with model.init_from to what its config.json says. A key that was given
// besides must say the same, but model.vocab, which may be larger: then the vocabulary grows.
void take_published_model(LoadedConfig& loaded);

// The weights that a new run begins with, their names and shapes checked, and a line about them. No weights
// where the run makes its first values itself, goes on from a checkpoint, or where rank 0 reads for this
// rank.
struct InitialWeights {
  std::unique_ptr<PublishedWeights> weights;
  std::string line;
};
InitialWeights open_initial_weights(const RunSetup& setup, const World& world);

// What all model folders that a run saves have besides weights. The special tokens of config.json and the
// companions are those of what the run begins with: a checkpoint, where there is one, or model.init_from.
struct ModelDocuments {
  std::string config_json;
  Companions companions;  // rank 0 alone has them, and writes them
};
ModelDocuments model_documents(const RunSetup& setup, const std::string& checkpoint, const World& world);

}  // namespace flatshard
