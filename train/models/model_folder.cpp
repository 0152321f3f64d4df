#include "train/models/model_folder.h"

#include <filesystem>

#include "train/models/last_run.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

std::vector<int64_t> dims_of(const Shape& shape) {
  std::vector<int64_t> dims;
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  return dims;
}

}  // namespace

std::string find_model_folder(const std::string& given, const std::string& start) {
  const fs::path folder = given.empty() ? last_run(start) : fs::path(given);
  check(fs::is_directory(folder), folder.string(), ": no such folder");
  for (const fs::path& candidate : {folder, folder / "model"})
    if (fs::exists(candidate / "config.json")) return candidate.string();
  fail(str(folder.string(),
           ": neither a model folder (no config.json) nor a run folder (no model/config.json)"));
}

ParamTensors allocate_parameters(const Model& model, DType dtype, Arena& arena) {
  ParamTensors parameters;
  for (const ParamList& list : model.param_lists()) {
    parameters.emplace_back();
    for (const ParamSpec& spec : list.specs()) parameters.back().push_back(arena.alloc(dtype, spec.shape));
  }
  return parameters;
}

std::vector<SafetensorsSpec> weight_specs(const Model& model, DType dtype) {
  std::vector<SafetensorsSpec> specs;
  for (const ParamList& list : model.param_lists())
    for (const ParamSpec& spec : list.specs())
      specs.push_back({.name = spec.name, .dtype = dtype, .shape = dims_of(spec.shape)});
  return specs;
}

}  // namespace flatshard
