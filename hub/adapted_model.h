#pragma once
// A model folder (model_folder.h), optionally with an adapter folder (adapter_folder.h). The adapters stay
// separate from the base's weights, as layers of their own.

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
  std::string folder, adapter;  // adapter: "" for none
  // The quantization of weights while they are read. Unused if the folder already has 4-bit weights.
  QuantConfig quant{};
  std::vector<std::string> notes{};  // messages to the user: the chosen folder, and how it is read
};

// The config of the model: the folder's config, with its 4-bit layers, the adapters, and the vocabulary of an
// adapter that resizes it.
ModelConfig read_model_config(const ModelSource& source);

// The warnings about the adapter's adapter_config.json.
std::vector<std::string> warnings_of(const ModelSource& source);

// The folder with the model's tokenizer: the adapter's folder, if it has one.
std::string tokenizer_folder(const ModelSource& source);

// The values of a model, read from both folders.
class AdaptedWeights {
 public:
  // `model` must have the config of read_model_config().
  AdaptedWeights(const ModelSource& source, const Model& model);

  // Reads elements [first, first + count) of a parameter.
  void read(const std::string& name, int64_t first, int64_t count, float* to);
  // Reads bytes [first, first + count) of a part of a 4-bit weight.
  void read_bytes(const std::string& part, int64_t first, int64_t count, std::byte* to) const;
  // Whether the model's 4-bit weights are quantized from the values of read().
  bool are_rounded() const { return !config_.quantized.empty() && base_->quantized().empty(); }
  const ModelConfig& config() const { return config_; }

 private:
  ModelConfig config_;
  std::optional<AdapterFolder> adapter_;
  std::optional<PublishedWeights> base_;
};

// Initial values from these weights, which must outlive the result.
InitialValues adapted_values(AdaptedWeights& weights);

// Reads the weights into the parameters, and converts them to the parameters' dtype.
void read_model_weights(const ModelSource& source, const Model& model, const ParamTensors& parameters,
                        Stream& stream);

}  // namespace flatshard
