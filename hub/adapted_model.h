#pragma once
// A model folder (model_folder.h), and perhaps an adapter folder (adapter_folder.h) on top of it. The
// adapters stay apart from the base's weights: the model has them as layers of their own.

#include <optional>
#include <string>
#include <vector>

#include "hub/adapter_folder.h"
#include "hub/initial_values.h"
#include "hub/published_weights.h"
#include "model/quantization.h"

namespace flatshard {

struct ModelSource {
  ModelSource(std::string model_folder, std::string adapter_folder = "")
      : folder(std::move(model_folder)), adapter(std::move(adapter_folder)) {}
  std::string folder, adapter;  // "": no adapter
  // How the weights are rounded while they are read, unless the folder has 4-bit weights already.
  QuantConfig quant{};
  std::vector<std::string> notes{};  // for the user: which folder was taken, and how it is read
};

// The config of the model: that of the folder, with its 4-bit layers, the adapters, and their vocabulary if
// they resize it.
ModelConfig read_model_config(const ModelSource& source);

// The warnings about its adapter_config.json.
std::vector<std::string> warnings_of(const ModelSource& source);

// The folder with the model's tokenizer: that of the adapter, if it has one.
std::string tokenizer_folder(const ModelSource& source);

// The values of such a model, from both folders.
class AdaptedWeights {
 public:
  // `model` has the config of read_model_config().
  AdaptedWeights(const ModelSource& source, const Model& model);

  // Elements [first, first + count) of a parameter.
  void read(const std::string& name, int64_t first, int64_t count, float* to);
  // Bytes [first, first + count) of a part of a 4-bit weight.
  void read_bytes(const std::string& part, int64_t first, int64_t count, std::byte* to) const;
  // Whether the model's 4-bit weights are made from those that read() has.
  bool are_rounded() const { return !config_.quantized.empty() && base_->quantized().empty(); }
  const ModelConfig& config() const { return config_; }

 private:
  ModelConfig config_;
  std::optional<AdapterFolder> adapter_;
  std::optional<PublishedWeights> base_;
};

// Initial values from these weights, which must outlive it.
InitialValues adapted_values(AdaptedWeights& weights);

// Reads the weights into the parameters, converted to their dtype.
void read_model_weights(const ModelSource& source, const Model& model, const ParamTensors& parameters,
                        Stream& stream);

}  // namespace flatshard
