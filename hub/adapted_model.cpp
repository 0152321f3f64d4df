#include "hub/adapted_model.h"

#include <filesystem>

#include "hub/last_run.h"
#include "hub/tokenizer_files.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

AdapterFolder open_adapter(const ModelSource& source, const ModelConfig& base) {
  Arena tables("tables", Device::cpu());  // only counts
  return {source.adapter, Model(base, tables)};
}

// The adapter folder that a path means: itself, or the adapter/ of a run folder; "" if it is neither.
std::string adapter_folder_in(const fs::path& path) {
  for (const fs::path& candidate : {path, path / "adapter"})
    if (fs::exists(candidate / kAdapterConfigName)) return candidate.string();
  return "";
}

// An adapter folder may have a config.json too, that of its model.
bool is_model_folder(const fs::path& path) {
  if (fs::exists(path / kAdapterConfigName)) return false;
  return fs::exists(path / "config.json") || fs::exists(path / "model" / "config.json");
}

std::string base_of(const std::string& adapter) {
  const std::string path = adapter + "/" + kAdapterConfigName;
  std::vector<std::string> warnings;
  const std::string base = read_adapter_config(path, warnings).base;
  check(!base.empty() && fs::is_directory(base), path, ": base_model_name_or_path is ",
        base.empty() ? "null" : "\"" + base + "\", which is not a folder",
        ": give the folder of the base and, with --adapter, ", adapter);
  return base;
}

ModelConfig base_config(const ModelSource& source) { return read_hf_config(source.folder + "/config.json"); }

}  // namespace

ModelSource find_model(const std::string& given, const std::string& adapter, const std::string& start) {
  if (adapter.empty()) {
    const fs::path path = given.empty() ? last_run(start) : fs::path(given);
    const std::string found = is_model_folder(path) ? "" : adapter_folder_in(path);
    return found.empty() ? ModelSource(find_model_folder(given, start)) : ModelSource(base_of(found), found);
  }
  check(fs::is_directory(adapter), adapter, ": no such folder");
  const std::string found = adapter_folder_in(adapter);
  check(!found.empty(), adapter, ": not an adapter folder (no ", kAdapterConfigName, ")");
  return {given.empty() ? base_of(found) : find_model_folder(given, start), found};
}

ModelConfig read_model_config(const ModelSource& source) {
  ModelConfig config = base_config(source);
  auto quantized = four_bit_layers(source.folder, config);
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
  return own ? source.adapter : source.folder;
}

AdaptedWeights::AdaptedWeights(const ModelSource& source, const Model& model) {
  const ModelConfig base = base_config(source);
  if (!source.adapter.empty()) adapter_.emplace(open_adapter(source, base));
  ModelConfig plain = model.config();
  plain.quantized.clear();
  Arena tables("tables", Device::cpu());  // only counts
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

InitialValues initial_values(AdaptedWeights& weights) {
  return initial_values([&weights](const std::string& name, int64_t first, int64_t count,
                                   float* to) { weights.read(name, first, count, to); },
                        [&weights](const std::string& part, int64_t first, int64_t count, std::byte* to) {
                          weights.read_bytes(part, first, count, to);
                        });
}

void read_model_weights(const ModelSource& source, const Model& model, const ParamTensors& parameters,
                        Stream& stream) {
  AdaptedWeights weights(source, model);
  const InitialValues values = initial_values(weights);
  for (size_t u = 0; u < parameters.size(); ++u)
    for (size_t i = 0; i < parameters[u].size(); ++i) {
      const Tensor& to = parameters[u][i];
      values(stream, model.param_lists()[u].specs()[i], 0, {to.data, to.dtype, {to.size()}, to.device});
    }
}

}  // namespace flatshard
