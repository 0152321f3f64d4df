#include "tools/inference/find_model.h"

#include <filesystem>
#include <optional>

#include "hub/adapter_base.h"
#include "hub/hf_config.h"
#include "hub/last_run.h"
#include "runtime/hub_id.h"
#include "train/save/best_checkpoint.h"
#include "train/save/checkpoint_names.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

// The adapter folder at a path: the path itself, or the adapter/ of a run folder; "" if it is neither.
std::string adapter_folder_in(const fs::path& path) {
  for (const fs::path& candidate : {path, path / "adapter"})
    if (fs::exists(candidate / kAdapterConfigName)) return candidate.string();
  return "";
}

// An adapter folder may also have a config.json, which describes its model.
bool is_model_folder(const fs::path& path) {
  if (fs::exists(path / kAdapterConfigName)) return false;
  return fs::exists(path / kConfigName) || fs::exists(path / "model" / kConfigName);
}

// Resolves a run that has not ended to its latest checkpoint. Returns other paths unchanged.
fs::path started_run(const fs::path& path, std::vector<std::string>& notes) {
  if (is_model_folder(path) || !adapter_folder_in(path).empty()) return path;
  if (steps_in(path).empty()) {
    check(!fs::is_directory(path) || !fs::exists(path / "metrics.jsonl"), path.string(),
          ": this run has neither a model nor a checkpoint yet: wait for the first, which "
          "checkpoint.save_every schedules");
    return path;
  }
  const fs::path latest = latest_in(path);
  notes.push_back(str("model     ", latest.string(), ", the latest checkpoint: the run has not ended"));
  return latest;
}

// Resolves "", RUN/best, RUN/latest, "best" and "latest", as described at find_model().
fs::path resolved(const std::string& given, const std::string& start, std::vector<std::string>& notes) {
  if (given.empty()) return last_run(start);
  fs::path path = named_checkpoint(given);
  if ((given == kBestName || given == kLatestName) && path == given && !fs::exists(path))
    path = named_checkpoint(last_run(start) / given);
  if (path != given) notes.push_back(str("model     ", path.string()));
  return path;
}

void add_base(ModelSource& source, bool is_named, const BaseChoice& choice) {
  if (!is_named) source.notes.push_back("base      " + source.folder);
  const std::optional<AdapterBase> recorded = read_adapter_base(source.adapter);
  if (!recorded || !recorded->quant.base || choice.as_stored) return;
  if (read_published_quantization(source.folder)) return;  // already has 4-bit weights
  source.quant = recorded->quant;
  source.notes.push_back(str(is_named ? "base      " : "          ", "rounded to ", *source.quant.base,
                             " as in training; --base-as-stored leaves its weights as they are"));
}

}  // namespace

ModelSource find_model(const std::string& given, const std::string& adapter, const BaseChoice& base,
                       const std::string& start) {
  std::vector<std::string> notes;
  std::string found;
  if (adapter.empty()) {
    const fs::path path = started_run(resolved(given, start, notes), notes);
    if (!is_model_folder(path)) found = adapter_folder_in(path);
    if (found.empty()) {
      ModelSource source(find_model_folder(path.string(), start));
      source.notes = notes;
      return source;
    }
  } else {
    const fs::path path = resolved(adapter, start, notes);
    check(fs::is_directory(path), adapter, ": no such folder", download_advice(adapter));
    found = adapter_folder_in(started_run(path, notes));
    check(!found.empty(), adapter, ": not an adapter folder (no ", kAdapterConfigName, ")");
  }
  const bool is_named = !adapter.empty() && !given.empty();
  const std::string naming = !base.naming.empty() ? base.naming : "and, with --adapter, " + found;
  const BaseAdvice advice{.right = is_named ? "give the folder or GGUF file of that model"
                                            : "give the folder or GGUF file of the base " + naming,
                          .other = "with --other-base another model, such as one that was rounded since"};
  ModelSource source(is_named ? find_model_folder(named_checkpoint(given).string(), start)
                              : find_base(found, base.other, advice),
                     found);
  if (is_named && !base.other) check_base(found, source.folder, advice);
  source.notes = notes;
  add_base(source, is_named, base);
  return source;
}

}  // namespace flatshard
