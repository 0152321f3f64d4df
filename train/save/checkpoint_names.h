#pragma once
// The checkpoints of a run as a person finds them in its folder: step-20, step-40 ..., and the file `latest`,
// a line with the name of the newest.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checksums.h"

namespace flatshard {

inline constexpr const char *kLatestName = "latest", *kConfigName = "config.json";

std::string name_of_step(int64_t step);
// The N of step-N.
std::optional<int64_t> step_of(const std::string& name);
// Of all checkpoints in a folder, ascending.
std::vector<int64_t> steps_in(const std::filesystem::path& folder);

// That of a run's folder.
std::filesystem::path latest_in(const std::filesystem::path& run);
// Whether its folder says that it is the latest.
bool is_latest(const std::filesystem::path& checkpoint);
// The path of a checkpoint, or the latest of a run's folder. What ends in "/" is the same without it.
std::filesystem::path find_checkpoint(const std::string& path);

// Whether a run wrote this folder as a checkpoint, whole or in part: it is a folder, not a link, and holds
// nothing but the files of a checkpoint.
bool is_of_checkpoint(const std::filesystem::path& folder);
// Removes such a folder if it is there. An Error when something else has the path.
void remove_checkpoint(const std::filesystem::path& folder);

// An Error unless there are sums of every file that a checkpoint consists of; otherwise the names of those
// with tensors.
std::set<std::string> check_complete(const std::filesystem::path& checkpoint, const Checksums& sums);

}  // namespace flatshard
