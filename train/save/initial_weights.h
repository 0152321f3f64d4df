#pragma once
// A run that starts from published weights: model.init_from names a Hugging Face model folder
// (model_folder.h). Its config.json defines the model, and its weights, of any float dtype, initialize the
// masters. Each rank reads only the ranges it owns; with parallel.cpu_ram_efficient_loading only the first
// rank of each pipeline stage reads, and sends the other ranks one unit at a time.

#include <memory>
#include <string>

#include "comm/world.h"
#include "hub/adapter_folder.h"
#include "hub/initial_values.h"
#include "hub/published_weights.h"
#include "hub/tokenizer_files.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// If model.init_from is set, takes the model keys from its config.json. A key that the config sets too must
// agree, except that model.vocab may be larger: then the vocabulary grows. If model.adapter is set, takes
// model.init_from from its adapter_config.json and, if the run continues the adapter, also the lora keys, of
// which only lora.dropout may differ.
void take_published_model(LoadedConfig& loaded);

// The weights that a run starts from, with names and shapes checked, and lines that describe them. Members
// are empty if the run initializes its own, resumes from a checkpoint that has all of them, or if another
// rank reads for this rank.
struct InitialWeights {
  std::unique_ptr<PublishedWeights> weights{};
  std::unique_ptr<AdapterFolder> adapter{};
  std::string lines{};
};
// `always`: opens them even if the checkpoint has all of them.
InitialWeights open_initial_weights(const RunSetup& setup, const World& world, bool always = false);
// The lines for a plan, which needs config.json alone: they say so if the folder has no weights.
std::string describe_initial_weights(const RunSetup& setup, const World& world);

// The initial values of every parameter: from `initial`, which must outlive the result, or from the run's
// seed where `initial` has none.
InitialValues values_of_run(const RunSetup& setup, const InitialWeights& initial);

// The contents, besides weights, of every model folder that a run saves. The special tokens of config.json
// and the tokenizer files come from the checkpoint that the run resumes from, or else from model.init_from.
// `base` is the fingerprint of its weights, which only rank 0 needs, for adapters.
struct ModelDocuments {
  std::string config_json;
  std::string adapter_config_json{};  // set for a model with adapters
  std::string adapter_base_json{};    // set if the base of the adapters is model.init_from
  bool vocab_has_grown = false;       // whether it exceeds that of model.init_from; with adapters only
  TokenizerFiles tokenizer_files;     // only on rank 0, which writes them
};
ModelDocuments model_documents(const RunSetup& setup, const std::string& checkpoint, const std::string& base,
                               const World& world);

}  // namespace flatshard
