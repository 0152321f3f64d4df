#pragma once
// The inputs of `ckpt`, a model's tensors and their description: a checkpoint (checkpoints.h), a model folder
// (model_folder.h), a GGUF file (gguf/gguf_file.h), an adapter folder (adapter_folder.h) with the config.json
// of its base, or a run folder, which stands for its latest checkpoint.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_folder.h"
#include "hub/quantized/mxfp4_tensors.h"
#include "hub/quantized/quantized_tensors.h"
#include "model/config.h"
#include "train/save/train_state.h"

namespace flatshard {

struct TensorSet {
  std::string stem;  // model, adapter_model, or a set of the optimizer's state, such as exp_avg
  TensorFolder tensors;
  std::map<std::string, const SafetensorsEntry*> entries;  // keyed by the model's names (published_weights.h)
};

class TensorSets {
 public:
  // Reads everything except tensor values. An Error names the missing or wrong file.
  explicit TensorSets(const std::string& given);

  std::string path() const { return path_.string(); }
  const std::filesystem::path& folder() const { return path_; }
  // Whether this is a GGUF file, which has no sets: its weights are read as values (published_weights.h).
  bool is_gguf() const { return sets_.empty(); }
  const ModelConfig& config() const { return config_; }
  // Whether the weights belong to adapters, with PEFT's names (adapter_folder.h).
  bool has_adapters() const { return has_adapters_; }
  const std::optional<TrainState>& state() const { return state_; }  // only a checkpoint has one
  const std::vector<TensorSet>& sets() const { return sets_; }       // the set of weights is first
  std::string weights_path() const { return is_gguf() ? path() : sets_.front().tensors.path(); }
  int64_t bytes() const;  // size of all tensors of the sets

 private:
  std::filesystem::path path_;
  ModelConfig config_;
  std::optional<TrainState> state_;
  bool has_adapters_ = false;
  std::vector<TensorSet> sets_;
};

// The 4-bit weights of a set; empty unless it is the set of weights.
QuantizedTensors quantized_in(const TensorSet& set);
// The experts in MXFP4 among the weights.
Mxfp4Tensors mxfp4_in(const TensorSets& sets);

// Resolves a run folder to its latest checkpoint, and RUN/best to its best checkpoint. Returns other folders
// and GGUF files unchanged.
std::filesystem::path folder_meant(const std::string& given);
// Whether a folder is a run folder, which has checkpoints.
bool is_run(const std::string& folder);

// The tensors of the model with this config, in model order.
std::vector<SafetensorsSpec> specs_of(const ModelConfig& config);

// The differences between the tensors and the config; empty if they match. Moments of frozen parameters may
// be missing, but only from all sets. A model folder may contain tensors that published_weights.h ignores.
std::vector<std::string> mismatches(const TensorSets& sets);

}  // namespace flatshard
