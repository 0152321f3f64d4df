#pragma once
// A run that starts from published weights: model.init_from names a Hugging Face model folder
// (model_folder.h). Its config.json defines the model, and its weights, of any float dtype, initialize the
// masters. Each rank reads only the ranges it owns; with parallel.cpu_ram_efficient_loading rank 0 alone
// reads, and sends the others one unit at a time.

#include <memory>
#include <string>

#include "comm/world.h"
#include "train/config/run_setup.h"
#include "train/models/published_weights.h"
#include "train/models/tokenizer_files.h"

namespace flatshard {

// If model.init_from is set, takes the model keys from its config.json. A key that the config sets too must
// agree, except that model.vocab may be larger: then the vocabulary grows.
void take_published_model(LoadedConfig& loaded);

// The initial weights of a new run, with names and shapes checked, and a line that describes them. No weights
// if the run initializes its own, resumes from a checkpoint, or if rank 0 reads for this rank.
struct InitialWeights {
  std::unique_ptr<PublishedWeights> weights;
  std::string line;
};
InitialWeights open_initial_weights(const RunSetup& setup, const World& world);

// The contents, besides weights, of every model folder that a run saves. The special tokens of config.json
// and the tokenizer files come from the checkpoint that the run resumes from, or else from model.init_from.
struct ModelDocuments {
  std::string config_json;
  TokenizerFiles tokenizer_files;  // only on rank 0, which writes them
};
ModelDocuments model_documents(const RunSetup& setup, const std::string& checkpoint, const World& world);

}  // namespace flatshard
