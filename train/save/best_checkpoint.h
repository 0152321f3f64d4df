#pragma once
// The best checkpoint of a run, and the names under which programs take checkpoints: RUN/best and RUN/latest.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace flatshard {

inline constexpr const char* kBestName = "best";

// The checkpoint with the lowest evaluation loss; of equal ones, the earliest.
struct BestCheckpoint {
  std::filesystem::path path;
  int64_t step;
  double loss;
};
// Returns nothing if no checkpoint of the run has an evaluation loss; an Error if there is no checkpoint.
std::optional<BestCheckpoint> find_best(const std::filesystem::path& run);
// An Error if no checkpoint of the run has an evaluation loss.
BestCheckpoint best_in(const std::filesystem::path& run);
// A clause for messages if the run's metrics have a lower loss than `saved`, in a step that was not saved. ""
// otherwise, or if there are no metrics, as in a copy of the checkpoints alone.
std::string describe_unsaved(const std::filesystem::path& run, double saved);

// Resolves RUN/best and RUN/latest of a run folder, and "best" and "latest" inside one. Existing folders,
// whatever their names, and other paths are returned as they are.
std::filesystem::path named_checkpoint(const std::filesystem::path& path);

}  // namespace flatshard
