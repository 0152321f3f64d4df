#pragma once
// An adapter folder in the format of Hugging Face PEFT: adapter_config.json (adapter_config.h) and
// adapter_model.safetensors. Its tensors are the a and b of every adapted linear layer, and the parameters of
// the base that it replaces completely: trained modules, and embeddings of a resized vocabulary.
//
// Names and shapes must match the base model and adapter_config.json. Otherwise an Error names the tensor.

#include <array>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/tensor_folder.h"
#include "hub/adapter_config.h"
#include "hub/expert_tensors.h"
#include "model/model.h"

namespace flatshard {

inline constexpr const char* kAdapterStem = "adapter_model";

// The name in an adapter file of a parameter with this name in PEFT (peft_names.h). For example,
// model.layers.0.mlp.up_proj.lora_A.weight becomes base_model.model.model.layers.0.mlp.up_proj.lora_A.weight.
std::string adapter_tensor_name(const std::string& parameter);

// What the config selects in a base of this family, with PEFT's defaults.
LoraConfig selection_of(const AdapterConfig& config, const std::string& family);

class AdapterFolder {
 public:
  // `base` is the model without adapters, with the vocabulary of its folder.
  AdapterFolder(const std::string& folder, const Model& base);

  const std::string& folder() const { return folder_; }
  const AdapterConfig& config() const { return config_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  // The value for ModelConfig::adapters.
  const Adapters& adapters() const { return adapters_; }
  // The vocabulary size of the base with this adapter.
  int64_t vocab() const { return vocab_; }
  // The parameters of the base that the folder replaces, in model order.
  const std::vector<std::string>& replaced() const { return replaced_; }

  // Whether the folder has this parameter: an a, a b, or a replaced parameter.
  bool has(const std::string& parameter) const;
  // The tensor that is, or contains, the parameter, which the folder must have.
  const SafetensorsEntry& entry(const std::string& parameter) const { return *entries_.at(parameter).entry; }
  void read(const std::string& parameter, int64_t first, int64_t count, float* to) const;
  // Whether a weight of the base is in a layer with an adapter.
  bool adapts(const std::string& weight) const;
  // Adds scale * b a to elements [first, first + count) of a weight of the base, in the base's order of
  // storage. Does nothing if no adapter changes the weight. Calls in sequence for the same weight are
  // fastest.
  void merge(const std::string& weight, int64_t first, int64_t count, float* values);

 private:
  // The factors of an update, (rows, rank) and (rank, columns), in the layout of the base's weight.
  struct Update {
    std::string weight;
    int64_t columns = 0, rank = 0;
    std::vector<float> left, right;
    float scale = 0;
  };
  using Shapes = std::map<std::string, std::vector<int64_t>>;  // shapes of the base's parameters
  // Where a parameter is in the file.
  struct Place {
    const SafetensorsEntry* entry;
    std::optional<ExpertPart> part{};  // empty: it is the whole tensor
  };
  // The values of a tensor of all experts. The parts of an a and of a b are read in turn.
  struct WholeTensor {
    const SafetensorsEntry* entry = nullptr;
    std::vector<float> values;
  };

  void check_names(const Model& base);
  void add_experts(const std::string& name, const SafetensorsEntry& entry, const ModelConfig& config,
                   std::span<const std::string> parameters);
  void join_single_experts(const ModelConfig& config);
  void join_layers(const ModelConfig& config, const std::vector<std::string>& layers, int64_t in, int64_t out,
                   bool nested);
  void add_layer(const std::string& parameter, const SafetensorsEntry& entry, const Shapes& shapes);
  void add_replaced(const std::string& parameter, const SafetensorsEntry& entry, const Shapes& shapes);
  void check_layers();
  void check_vocabulary(const Shapes& shapes);
  std::string tensor_name(const std::string& parameter) const;
  std::string layer_of(const std::string& weight) const;
  std::vector<float> read_all(const std::string& parameter) const;
  const std::vector<float>& whole_tensor(const SafetensorsEntry& entry) const;
  void load(const std::string& weight, const Adapter& adapter);

  std::string folder_, family_;
  std::vector<std::string> warnings_;
  AdapterConfig config_;
  TensorFolder tensors_;
  std::string embedding_, head_;  // names of parameters
  bool tied_, transposed_;
  int64_t experts_, vocab_;
  std::map<std::string, int64_t> ranks_;  // keyed by path of a layer; read from the file's shapes
  std::map<std::string, Place> entries_;  // keyed by parameter
  std::map<std::string, const SafetensorsEntry*> of_single_experts_;  // keyed by parameter, until joined
  // The tensors of all experts that those of single experts stand for, and which they are made of.
  std::deque<SafetensorsEntry> made_;
  std::map<const SafetensorsEntry*, std::vector<SingleExpert>> made_of_;
  Adapters adapters_;
  std::vector<std::string> replaced_;
  Update update_;                                  // used by the last merge
  mutable std::array<WholeTensor, 2> of_experts_;  // b and a, used by the last reads
};

}  // namespace flatshard
