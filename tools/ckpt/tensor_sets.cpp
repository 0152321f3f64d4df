#include "tools/ckpt/tensor_sets.h"

#include <map>
#include <set>

#include "checkpoint/float_values.h"
#include "hub/published_weights.h"
#include "runtime/hub_id.h"
#include "runtime/memory.h"
#include "train/save/best_checkpoint.h"
#include "train/save/checkpoint_names.h"
#include "train/save/shard_files.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

using Shapes = std::map<std::string, std::vector<int64_t>>;

void compare(const TensorSet& set, const Shapes& expected, bool all, std::vector<std::string>& lines) {
  const std::string& path = set.tensors.path();
  for (const auto& [name, entry] : set.tensors.entries()) {
    const auto found = expected.find(name);
    if (found == expected.end())
      lines.push_back(str(path, ": ", name, " is not in the model of config.json"));
    else if (found->second != entry->shape)
      lines.push_back(str(path, ": ", name, " is ", in_brackets(entry->shape), ", config.json requires ",
                          in_brackets(found->second)));
  }
  for (const auto& [name, shape] : expected)
    if (all && !set.tensors.find(name))
      lines.push_back(str(path, ": ", name, ' ', in_brackets(shape), " is missing"));
}

// Adds to `shapes` the tensors that an optimizer keeps in addition to one tensor per parameter, such as the
// scales of 8-bit moments. Reports missing ones.
Shapes with_scales(const TensorSet& set, const OptimizerKind& optimizer, Shapes shapes,
                   std::vector<std::string>& lines) {
  std::vector<StateSpec> states;
  for (const StateSpec& state : optimizer.states())
    if (set.stem == state.set) states.push_back(state);
  for (const auto& [name, entry] : set.tensors.entries())
    for (size_t i = 1; i < states.size() && entry->dtype == safetensors_name(states[0].dtype); ++i) {
      const std::string scales = name + states[i].suffix;
      shapes[scales] = {states[i].size(element_count(*entry))};
      if (!set.tensors.find(scales)) lines.push_back(str(set.tensors.path(), ": ", scales, " is missing"));
    }
  return shapes;
}

// Reports the parameters that one set of the optimizer's state lacks and another has.
void compare_states(std::span<const TensorSet> sets, std::vector<std::string>& lines) {
  for (const TensorSet& one : sets)
    for (const TensorSet& other : sets)
      for (const auto& [name, entry] : one.tensors.entries())
        if (!other.tensors.find(name))
          lines.push_back(
              str(other.tensors.path(), ": ", name, " is missing, but present in the other moment"));
}

// Checks a model or adapter folder, which may be published by others: it matches if a run could start from
// it.
std::vector<std::string> published_mismatches(const TensorSets& sets) {
  Arena tables("tables", Device::cpu());  // counts bytes, allocates nothing
  const Model model(sets.config(), tables);
  try {
    if (sets.has_adapters())
      AdapterFolder(sets.path(), model);
    else
      PublishedWeights(sets.path(), model, sets.config().vocab);
  } catch (const Error& error) {
    return {error.what()};
  }
  return {};
}
}  // namespace

fs::path folder_meant(const std::string& given) {
  const fs::path path = named_checkpoint(given);
  check(is_model_path(path.string()), given,
        fs::exists(path) ? ": is neither a folder nor a GGUF file"
                         : ": no such folder" + download_advice(given));
  if (!fs::is_directory(path)) return path;
  return fs::exists(path / kConfigName) ? path : find_checkpoint(path.string());
}

TensorSets::TensorSets(const std::string& given) : path_(folder_meant(given)) {
  config_ = read_published_config(path_.string());
  if (!fs::is_directory(path_)) return;
  if (const fs::path state = path_ / TrainState::kFileName; fs::exists(state))
    state_ = read_train_state(state.string());
  has_adapters_ = fs::exists(path_ / kAdapterConfigName);
  for (const char* stem : stems_in(path_)) {
    sets_.push_back({.stem = stem,
                     .tensors = TensorFolder(path_.string(), stem, joined_experts(config_)),
                     .entries = {}});
    TensorSet& set = sets_.back();
    set.entries = has_adapters_ ? set.tensors.entries() : model_tensors(set.tensors, config_);
  }
}

int64_t TensorSets::bytes() const {
  int64_t bytes = 0;
  for (const TensorSet& set : sets_)
    for (const auto& [name, entry] : set.tensors.entries()) bytes += entry->bytes.size;
  return bytes;
}

QuantizedTensors quantized_in(const TensorSet& set) {
  return {set.tensors.path(), set.stem == kWeightsStem ? set.entries : TensorEntries{}};
}

Mxfp4Tensors mxfp4_in(const TensorSets& sets) {
  const TensorSet& set = sets.sets().front();
  return {set.tensors.path(), set.stem == kWeightsStem ? set.entries : TensorEntries{}, sets.config()};
}

bool is_run(const std::string& folder) { return !steps_in(folder).empty(); }

std::vector<SafetensorsSpec> specs_of(const ModelConfig& config) {
  Arena tables("tables", Device::cpu());  // counts bytes, allocates nothing
  return weight_specs(Model(config, tables), DType::f32);
}

std::vector<std::string> mismatches(const TensorSets& sets) {
  if (!sets.state()) return published_mismatches(sets);
  std::vector<std::string> lines =
      sets.has_adapters() ? published_mismatches(sets) : std::vector<std::string>{};
  Shapes model;
  if (sets.has_adapters())
    for (const auto& [name, entry] : sets.sets().front().entries) model[name] = entry->shape;
  else
    for (const SafetensorsSpec& spec : specs_of(sets.config())) model[spec.name] = spec.shape;
  const OptimizerKind& optimizer = optimizer_of(*sets.state());
  for (const TensorSet& set : sets.sets())
    compare(set, with_scales(set, optimizer, model, lines), set.stem == kWeightsStem, lines);
  compare_states(std::span(sets.sets()).subspan(1), lines);
  return lines;
}

}  // namespace flatshard
