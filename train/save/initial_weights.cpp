#include "train/save/initial_weights.h"

#include "runtime/text.h"
#include "train/models/hf_config.h"

namespace flatshard {
namespace {

std::string config_path(const std::string& folder) { return folder + "/config.json"; }

// Keys of the section `model` that are not part of the architecture.
bool is_of_the_run(const std::string& key) {
  return key == "model.init_from" || key == "model.trainable" || key == "model.pad_to_multiple_of";
}

}  // namespace

void take_published_model(LoadedConfig& loaded) {
  Config& c = loaded.config;
  if (c.init_from.empty()) return;
  const std::string path = config_path(c.init_from);
  Config published;
  published.model = read_hf_config(path);
  const auto given = config_values(c);
  const bool has_vocab = loaded.origin.at("model.vocab") != "default";
  const int64_t vocab = has_vocab ? c.model.vocab : published.model.vocab;
  for (const auto& [key, value] : config_values(published)) {
    if (!key.starts_with("model.") || is_of_the_run(key) || (key == "model.vocab" && has_vocab)) continue;
    std::string& origin = loaded.origin.at(key);
    if (origin != "default" && given.at(key) != value)
      fail(str(origin, ": ", key, " is ", given.at(key), ", but ", path, " says ", value, ": remove it"));
    origin = path;
  }
  check(vocab >= published.model.vocab, loaded.origin.at("model.vocab"), ": model.vocab is ", vocab,
        ", must be at least ", published.model.vocab, ", the vocabulary of ", path);
  c.model = published.model;
  c.model.vocab = vocab;
}

InitialWeights open_initial_weights(const RunSetup& setup, const World& world) {
  const std::string& folder = setup.config.init_from;
  if (folder.empty() || !setup.config.run.resume.empty()) return {};
  if (setup.units.sync_initial_values && world.rank() != 0) return {};
  Arena tables("tables", Device::cpu());  // never allocates
  const Model model(setup.model, tables);
  const int64_t vocab = read_hf_config(config_path(folder)).vocab, grown = setup.model.vocab - vocab;
  InitialWeights initial{.weights = std::make_unique<PublishedWeights>(folder, model, vocab), .line = ""};
  initial.line = str("from      ", initial.weights->describe(),
                     setup.units.sync_initial_values ? ", read by rank 0 for all ranks" : "", '\n');
  if (grown > 0)
    initial.line += str("          the vocabulary grows from ", with_commas(vocab), " to ",
                        with_commas(setup.model.vocab), "; new rows are the mean of the existing ones\n");
  return initial;
}

ModelDocuments model_documents(const RunSetup& setup, const std::string& checkpoint, const World& world) {
  const std::string& folder = checkpoint.empty() ? setup.config.init_from : checkpoint;
  ModelDocuments documents{
      .config_json = hf_config_json(setup.model, DType::f32, folder.empty() ? "" : config_path(folder)),
      .tokenizer_files = {}};
  const std::string& tokenizer = setup.config.data.tokenizer;
  if (world.rank() == 0)
    documents.tokenizer_files =
        read_tokenizer_files(checkpoint.empty() && !tokenizer.empty() ? tokenizer : folder);
  return documents;
}

}  // namespace flatshard
