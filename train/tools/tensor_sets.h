#pragma once
// What `ckpt` is pointed at: a folder with a model's tensors and what is said about them. It is a checkpoint
// (checkpoints.h), a model folder (model_folder.h), or the folder of a run, which stands for its latest
// checkpoint.

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_folder.h"
#include "model/config.h"
#include "train/save/train_state.h"

namespace flatshard {

struct TensorSet {
  std::string stem;  // model, exp_avg, exp_avg_sq
  TensorFolder tensors;
  std::map<std::string, const SafetensorsEntry*>
      entries;  // under the names of the model; published_weights.h
};

class TensorSets {
 public:
  // Reads all but the tensors' values. An Error names the file that is missing or wrong.
  explicit TensorSets(const std::string& given);

  std::string path() const { return path_.string(); }
  const std::filesystem::path& folder() const { return path_; }
  const ModelConfig& config() const { return config_; }
  const std::optional<TrainState>& state() const { return state_; }  // a checkpoint has one
  const std::vector<TensorSet>& sets() const { return sets_; }       // the weights first
  const TensorFolder& weights() const { return sets_.front().tensors; }
  int64_t bytes() const;  // of all tensors

 private:
  std::filesystem::path path_;
  ModelConfig config_;
  std::optional<TrainState> state_;
  std::vector<TensorSet> sets_;
};

// The path of the folder that is meant.
std::filesystem::path folder_meant(const std::string& given);
// Whether a folder is that of a run: it has checkpoints.
bool is_run(const std::string& folder);

// The tensors that a config's model has, in its order.
std::vector<SafetensorsSpec> specs_of(const ModelConfig& config);

// Why tensors are not those of the config; empty where they are. Of moments some may be missing, those of
// frozen parameters, but then in both sets. A model folder may hold what published_weights.h passes over.
std::vector<std::string> mismatches(const TensorSets& sets);

}  // namespace flatshard
