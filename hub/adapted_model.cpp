#include "hub/adapted_model.h"

#include <filesystem>

#include "hub/gguf/gguf_tokenizer.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

AdapterFolder open_adapter(const ModelSource& source, const ModelConfig& base) {
  Arena tables("tables", Device::cpu());  // counts bytes, allocates nothing
  return {source.adapter, Model(base, tables)};
}

ModelConfig base_config(const ModelSource& source) { return read_published_config(source.folder); }

}  // namespace

ModelConfig read_model_config(const ModelSource& source) {
  ModelConfig config = base_config(source);
  auto quantized = four_bit_layers(source.folder, config);
  if (quantized.empty() && source.quant.base) {
    Arena tables("tables", Device::cpu());  // counts bytes, allocates nothing
    quantized = choose_quantized(source.quant, {}, Model(config, tables)).weights;
    config.fp32_norms = source.quant.fp32_norms;
  }
  if (!source.adapter.empty()) {
    const AdapterFolder adapter = open_adapter(source, config);
    config.vocab = adapter.vocab();
    config.adapters = adapter.adapters();
    for (const std::string& name : adapter.replaced()) quantized.erase(name.substr(0, name.rfind('.')));
  }
  config.quantized = std::move(quantized);
  return config;
}

std::vector<std::string> warnings_of(const ModelSource& source) {
  if (source.adapter.empty()) return {};
  return open_adapter(source, base_config(source)).warnings();
}

std::string tokenizer_folder(const ModelSource& source) {
  const bool own = !source.adapter.empty() && (fs::exists(source.adapter + "/tokenizer.json") ||
                                               fs::exists(source.adapter + "/tokenizer_config.json"));
  return own ? source.adapter : tokenizer_folder_of(source.folder);
}

AdaptedWeights::AdaptedWeights(const ModelSource& source, const Model& model) : config_(model.config()) {
  const ModelConfig base = base_config(source);
  if (!source.adapter.empty()) adapter_.emplace(open_adapter(source, base));
  ModelConfig plain = model.config();
  plain.quantized.clear();
  Arena tables("tables", Device::cpu());  // counts bytes, allocates nothing
  base_.emplace(source.folder, Model(plain, tables), base.vocab);
}

void AdaptedWeights::read(const std::string& name, int64_t first, int64_t count, float* to) {
  if (adapter_ && adapter_->has(name))
    adapter_->read(name, first, count, to);
  else
    base_->read(name, first, count, to);
}

void AdaptedWeights::read_bytes(const std::string& part, int64_t first, int64_t count, std::byte* to) const {
  base_->read_bytes(part, first, count, to);
}

InitialValues adapted_values(AdaptedWeights& weights) {
  const InitialValues values =
      values_read_by([&weights](const std::string& name, int64_t first, int64_t count, float* to) {
        weights.read(name, first, count, to);
      });
  if (weights.are_rounded()) return quantized_values(values, weights.config());
  return with_parts(
      values, bytes_read_by([&weights](const std::string& part, int64_t first, int64_t count, std::byte* to) {
        weights.read_bytes(part, first, count, to);
      }));
}

void read_model_weights(const ModelSource& source, const Model& model, const ParamTensors& parameters,
                        Stream& stream) {
  AdaptedWeights weights(source, model);
  const InitialValues values = adapted_values(weights);
  for (size_t u = 0; u < parameters.size(); ++u)
    for (size_t i = 0; i < parameters[u].size(); ++i) {
      const Tensor& to = parameters[u][i];
      values(stream, model.param_lists()[u].specs()[i], 0, {to.data, to.dtype, {to.size()}, to.device});
    }
}

}  // namespace flatshard
