#pragma once
// An adapter folder, as Hugging Face PEFT writes and reads it: adapter_config.json (adapter_config.h) and
// adapter_model.safetensors. Its tensors are the a and b of every adapted linear layer, and parameters of the
// base that it replaces in full: modules that were trained, and embeddings of a vocabulary that was resized.
//
// Names and shapes must match the base model and adapter_config.json. A tensor that does not is an Error that
// names it.

#include <map>
#include <string>
#include <vector>

#include "checkpoint/tensor_folder.h"
#include "hub/adapter_config.h"
#include "model/model.h"

namespace flatshard {

inline constexpr const char* kAdapterStem = "adapter_model";

// The name in an adapter file of a parameter that PEFT knows by this name (peft_names.h): of
// model.layers.0.mlp.up_proj.lora_A.weight it is base_model.model.model.layers.0.mlp.up_proj.lora_A.weight.
std::string adapter_tensor_name(const std::string& parameter);

class AdapterFolder {
 public:
  // `base` is the model without adapters, with the vocabulary of its folder.
  AdapterFolder(const std::string& folder, const Model& base);

  const std::string& folder() const { return folder_; }
  const AdapterConfig& config() const { return config_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  // For ModelConfig::adapters.
  const Adapters& adapters() const { return adapters_; }
  // The size of the vocabulary of the base with this adapter.
  int64_t vocab() const { return vocab_; }
  // The parameters of the base that the folder replaces, in model order.
  const std::vector<std::string>& replaced() const { return replaced_; }

  // Whether the folder has a parameter: a, b, or a replaced one.
  bool has(const std::string& parameter) const;
  // Of a parameter that it has.
  const SafetensorsEntry& entry(const std::string& parameter) const { return *entries_.at(parameter); }
  void read(const std::string& parameter, int64_t first, int64_t count, float* to) const;
  // Whether a weight of the base belongs to a layer with an adapter.
  bool adapts(const std::string& weight) const;
  // Adds scale * b a to elements [first, first + count) of a weight of the base, in the order in which the
  // base stores them. Nothing if it does not adapt the weight. Fastest if all calls for a weight are in
  // sequence.
  void merge(const std::string& weight, int64_t first, int64_t count, float* values);

 private:
  // An update as a product (rows, rank) (rank, columns), in the layout of the base's weight.
  struct Update {
    std::string weight;
    int64_t columns = 0, rank = 0;
    std::vector<float> left, right;
    float scale = 0;
  };
  using Shapes = std::map<std::string, std::vector<int64_t>>;  // by parameter of the base

  void check_names(const Model& base);
  void add_layer(const std::string& parameter, const SafetensorsEntry& entry, const Shapes& shapes);
  void add_replaced(const std::string& parameter, const SafetensorsEntry& entry, const Shapes& shapes);
  void check_layers();
  void check_vocabulary(const Shapes& shapes);
  std::string tensor_name(const std::string& parameter) const;
  std::vector<float> read_all(const std::string& parameter) const;
  void load(const std::string& weight, const Adapter& adapter);

  std::string folder_, family_;
  std::vector<std::string> warnings_;
  AdapterConfig config_;
  TensorFolder tensors_;
  std::string embedding_, head_;  // parameters
  bool tied_, transposed_;
  int64_t vocab_;
  std::map<std::string, int64_t> ranks_;                    // by path of a layer, as the file's shapes say
  std::map<std::string, const SafetensorsEntry*> entries_;  // by parameter
  Adapters adapters_;
  std::vector<std::string> replaced_;
  Update update_;  // of the last merge
};

}  // namespace flatshard
