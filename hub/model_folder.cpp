#include "hub/model_folder.h"

#include <filesystem>

#include "hub/gguf/gguf_file.h"
#include "hub/last_run.h"
#include "model/names.h"
#include "runtime/hub_id.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> dims_of(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

}  // namespace

bool is_model_path(const std::string& path) {
  std::error_code none;
  return !path.empty() && (fs::is_directory(path, none) || is_gguf(path));
}

std::string find_model_folder(const std::string& given, const std::string& start) {
  if (is_gguf(given)) return given;
  const fs::path folder = given.empty() ? last_run(start) : fs::path(given);
  check(!fs::is_regular_file(folder), folder.string(), ": is neither a folder nor a GGUF file");
  check(fs::is_directory(folder), folder.string(), ": no such folder", download_advice(folder.string()));
  for (const fs::path& candidate : {folder, folder / "model"})
    if (fs::exists(candidate / "config.json")) return candidate.string();
  fail(str(folder.string(),
           ": neither a model folder (no config.json) nor a run folder (no model/config.json)"));
}

std::vector<JoinedTensor> joined_experts(const ModelConfig& c) {
  const ParamNames& names = param_names(c.family);
  std::vector<JoinedTensor> joined;
  for (int64_t i = 0; i < c.layers; ++i) {
    if (!c.has_experts(i)) continue;
    const std::string prefix = block_prefix(names, i);
    const int64_t C = c.hidden, F = c.expert_ffn;
    const bool in_turn = names.interleaved_experts();
    const auto part = [&](const std::string& name, int64_t e, int64_t rows, int64_t columns) {
      return JoinedTensor::Part{prefix + of_expert(name, e) + ".weight", {rows, columns}};
    };
    const auto shape = [&](int64_t out, int64_t in) {
      return in_turn ? std::vector{c.experts, in, out} : std::vector{c.experts, out, in};
    };
    JoinedTensor gate_up{.name = prefix + names.all_gate_up, .shape = shape(2 * F, C), .parts = {}},
        down{.name = prefix + names.all_down, .shape = shape(C, F), .parts = {}};
    for (int64_t e = 0; e < c.experts; ++e) {
      if (in_turn) {
        gate_up.parts.push_back(part(names.expert_gate_up, e, C, 2 * F));
        down.parts.push_back(part(names.expert_down, e, F, C));
        continue;
      }
      gate_up.parts.push_back(part(names.expert_gate, e, F, C));
      gate_up.parts.push_back(part(names.expert_up, e, F, C));
      down.parts.push_back(part(names.expert_down, e, C, F));
    }
    joined.push_back(std::move(gate_up));
    joined.push_back(std::move(down));
  }
  return joined;
}

std::vector<JoinedTensor> written_joined(const ModelConfig& c) {
  return param_names(c.family).joins_experts ? joined_experts(c) : std::vector<JoinedTensor>{};
}

std::vector<SafetensorsSpec> weight_specs(const Model& model, DType dtype) {
  std::vector<SafetensorsSpec> specs;
  for (const ParamList& list : model.param_lists())
    for (const ParamSpec& spec : list.specs())
      specs.push_back({.name = spec.name,
                       .dtype = spec.role == ParamRole::fixed ? DType::f32 : dtype,
                       .shape = dims_of(spec.shape)});
  return specs;
}

}  // namespace flatshard
