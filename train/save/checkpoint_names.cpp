#include "train/save/checkpoint_names.h"

#include <algorithm>
#include <charconv>

#include "hub/adapter_base.h"
#include "hub/tokenizer_files.h"
#include "runtime/check.h"
#include "runtime/whole_file.h"
#include "train/save/best_checkpoint.h"
#include "train/save/shard_files.h"
#include "train/save/train_state.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

// The first line of the file `latest`; nothing if there is no such file.
std::optional<std::string> line_of_latest(const fs::path& folder) {
  constexpr int64_t kMostBytes = 4096;
  const fs::path file = folder / kLatestName;
  if (!fs::exists(fs::symlink_status(file))) return {};
  const std::string text = read_whole_file(file.string(), kMostBytes);
  return text.substr(0, text.find('\n'));
}

bool is_file_of_checkpoint(const std::string& name) {
  for (const char* other :
       {kConfigName, kAdapterConfigName, kAdapterBaseName, TrainState::kFileName, Checksums::kFileName})
    if (name == other) return true;
  const std::vector<const char*> stems = all_stems();
  return is_tokenizer_file(name) || std::any_of(stems.begin(), stems.end(),
                                                [&](const char* stem) { return is_tensor_file(name, stem); });
}

}  // namespace

std::string name_of_step(int64_t step) { return str("step-", step); }

std::optional<int64_t> step_of(const std::string& name) {
  constexpr std::string_view kPrefix = "step-";
  int64_t step = 0;
  if (!name.starts_with(kPrefix)) return {};
  const char* const end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + kPrefix.size(), end, step);
  const bool whole = error == std::errc{} && stop == end && name_of_step(step) == name;
  return whole ? std::optional(step) : std::nullopt;
}

std::vector<int64_t> steps_in(const fs::path& folder) {
  std::vector<int64_t> steps;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none))
    if (const auto step = step_of(entry.path().filename().string())) steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

bool is_latest(const fs::path& checkpoint) {
  return line_of_latest(checkpoint.parent_path()) == checkpoint.filename().string();
}

fs::path latest_in(const fs::path& folder) {
  const std::vector<int64_t> steps = steps_in(folder);
  check(!steps.empty(), folder.string(), ": has no checkpoint");
  const std::string name = line_of_latest(folder).value_or(name_of_step(steps.back()));
  const auto step = step_of(name);
  check(step && std::binary_search(steps.begin(), steps.end(), *step), (folder / kLatestName).string(),
        ": names \"", name, "\", which is not a checkpoint in this folder: resume from another, such as ",
        (folder / name_of_step(steps.back())).string());
  return folder / name;
}

fs::path find_checkpoint(const std::string& given) {
  fs::path path = named_checkpoint(given).lexically_normal();
  check(fs::is_directory(path), given, ": no such folder");
  if (path.filename().empty()) path = path.parent_path();
  if (fs::exists(path / Checksums::kFileName) || step_of(path.filename().string())) return path;
  check(!fs::exists(path / kConfigName), given,
        ": is a model folder, not a checkpoint: start a new run from it with model.init_from");
  return latest_in(path);
}

bool is_of_checkpoint(const fs::path& folder) {
  if (!fs::is_directory(fs::symlink_status(folder))) return false;
  const fs::directory_iterator entries(folder);
  return std::all_of(begin(entries), end(entries), [](const fs::directory_entry& entry) {
    return fs::is_regular_file(entry.symlink_status()) &&
           is_file_of_checkpoint(entry.path().filename().string());
  });
}

void remove_checkpoint(const fs::path& folder) {
  if (!fs::exists(fs::symlink_status(folder))) return;
  check(is_of_checkpoint(folder), folder.string(), ": was not written by a run: move it away");
  fs::remove_all(folder);
}

std::set<std::string> check_complete(const fs::path& path, const Checksums& sums) {
  std::vector<std::string> names{kConfigName, TrainState::kFileName};
  for (const char* name : {kAdapterConfigName, kAdapterBaseName})
    if (fs::exists(path / name)) names.emplace_back(name);
  std::set<std::string> with_tensors;
  for (const char* stem : stems_in(path)) {
    const TensorFolder tensors(path.string(), stem);
    names.insert(names.end(), tensors.file_names().begin(), tensors.file_names().end());
    for (const auto& file : tensors.files()) with_tensors.insert(fs::path(file->path()).filename().string());
  }
  for (const std::string& name : names)
    check(sums.files().contains(name), (path / Checksums::kFileName).string(), ": has no line for ", name);
  return with_tensors;
}

}  // namespace flatshard
