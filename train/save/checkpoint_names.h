#pragma once
// Names and files of checkpoints in a run folder: step-20, step-40 ..., and the file `latest`, one line with
// the name of the newest.

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checksums.h"

namespace flatshard {

inline constexpr const char *kLatestName = "latest", *kConfigName = "config.json";
// What a run leaves at its end. If the run continues after that, its result is renamed until the next end,
// because its checkpoints become newer.
inline constexpr std::array kResults{"model", "adapter"};
inline constexpr std::array kEarlierResults{"earlier-model", "earlier-adapter"};

std::string name_of_step(int64_t step);
// The N of step-N; nothing for other names.
std::optional<int64_t> step_of(const std::string& name);
// The steps of all checkpoints in a folder, ascending.
std::vector<int64_t> steps_in(const std::filesystem::path& folder);

// The latest checkpoint of a run folder.
std::filesystem::path latest_in(const std::filesystem::path& run);
// Whether the file `latest` beside the checkpoint names it.
bool is_latest(const std::filesystem::path& checkpoint);
// Resolves the path of a checkpoint, RUN/best (best_checkpoint.h), or a run folder, which means its latest. A
// trailing "/" is ignored.
std::filesystem::path find_checkpoint(const std::string& path);

// Whether this is a complete or partial checkpoint: a folder, not a link, that contains only files of a
// checkpoint.
bool is_of_checkpoint(const std::filesystem::path& folder);
// Removes the folder of a complete or partial checkpoint if it exists. An Error if the path is something
// else.
void remove_checkpoint(const std::filesystem::path& folder);

// An Error unless `sums` covers every file of the checkpoint. Returns the names of the files with tensors.
std::set<std::string> check_complete(const std::filesystem::path& checkpoint, const Checksums& sums);

}  // namespace flatshard
