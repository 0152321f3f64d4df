#include "hub/model_folder.h"

#include <filesystem>

#include "hub/gguf/gguf_file.h"
#include "hub/last_run.h"
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

std::vector<SafetensorsSpec> weight_specs(const Model& model, DType dtype) {
  std::vector<SafetensorsSpec> specs;
  for (const ParamList& list : model.param_lists())
    for (const ParamSpec& spec : list.specs())
      specs.push_back({.name = spec.name, .dtype = dtype, .shape = dims_of(spec.shape)});
  return specs;
}

}  // namespace flatshard
