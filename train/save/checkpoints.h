#pragma once
// The checkpoints of a run, in its folder:
//   step-20/   model.safetensors, and for AdamW exp_avg.safetensors and exp_avg_sq.safetensors
//              (shard_files.h), each split with an index if it is large; config.json, the tokenizer files of
//              the initial model (tokenizer_files.h), train_state.json (train_state.h), checksums of all
//              these (checkpoint/checksums.h)
//   latest     one line: the name of the newest
// They do not depend on the number of ranks or the sharding: any number of ranks under any strategy resumes
// from them.
//
// A checkpoint appears atomically. All ranks write their ranges into step-20.tmp and sync them (saver.h).
// Once every rank has finished, rank 0 adds the checksums, syncs, renames the folder, and then renames
// `latest`, which it wrote beforehand. An interruption leaves a step-20.tmp, which the next start reports and
// removes; it refuses to start if the folder contains foreign files.

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "checkpoint/checksums.h"
#include "comm/world.h"
#include "train/save/initial_weights.h"
#include "train/save/shard_files.h"
#include "train/save/train_state.h"
#include "train/step/engine.h"

namespace flatshard {

inline constexpr const char *kResumeLatest = "latest", *kResumeBest = "best", *kResumeAuto = "auto";

// The source that the run resumes from: run.resume, with "auto" replaced by "latest" if run.dir has a
// checkpoint, otherwise by "". Call on all ranks; rank 0 looks.
std::string resolved_resume(const RunConfig& run, World& world);

// The checkpoint that "latest" or "best" (of the run in this folder) or a path means. An Error if there is
// none.
std::filesystem::path checkpoint_named(const std::string& resume, const std::filesystem::path& run);

class Checkpoints {
 public:
  // checkpoint.keep bounds the number of checkpoints: the oldest are removed first, but never the best or the
  // newest; 0 keeps all.
  // With `overwrite` a run may begin in a folder with results of another, which it then removes.
  Checkpoints(const RunSetup& setup, World& world, bool overwrite);

  // Call on all ranks, with the run folder held (run_folder.h); succeeds, or throws the same Error, on all.
  // Removes the remains of an interrupted save. `resume` is "latest" or "best" (of this folder), or the path
  // of a checkpoint or run: finds that checkpoint and verifies all of it except the tensors. If `resume` is
  // "", returns nothing. Unless the checkpoint is in the folder, that must contain no results of an earlier
  // run, because two runs would mix.
  std::optional<TrainState> begin(const std::string& resume);
  // Lays out the files of this model's checkpoints. The documents must outlive this. Call before load() and
  // commit().
  void plan(Engine& engine, const ModelDocuments& documents);
  // Call on rank 0 when all inputs have been checked: with `overwrite`, removes the earlier results.
  void remove_overwritten() const;
  // The sets of tensor files, and the layout of each.
  const std::vector<ShardFiles>& files() const { return files_; }
  const std::vector<TensorFolderLayout>& layouts() const { return layouts_; }
  // Call on all ranks. Checks names and shapes of the tensors in the checkpoint that begin() found, reads
  // them, and verifies their checksums before they are used. The result of an earlier end of this run becomes
  // one of kEarlierResults.
  void load(Engine& engine);
  // Call on rank 0 when the run has written its result.
  void remove_earlier_results() const;

  // The temporary folder of a checkpoint.
  std::filesystem::path unfinished(int64_t step) const;
  // Call on rank 0 after all ranks have written and synced their ranges: makes this the newest checkpoint.
  void commit(const TrainState& state, Checksums sums) const;
  // Call on all ranks after commit(): records this checkpoint as the newest.
  void set_newest(const TrainState& state);

  // The checkpoint that the run resumes from; empty for a fresh run.
  const std::filesystem::path& source() const { return source_; }
  // Whether the run continues a checkpoint of its own folder.
  bool resumes_own() const { return own_; }
  int64_t last_step() const { return last_step_; }  // step of the newest in this folder; -1 if there is none
  int64_t bytes() const;                            // size of a checkpoint
  // The checkpoint with the lowest evaluation loss so far.
  const std::optional<TrainState::Evaluated>& best() const { return best_; }
  // The best of the checkpoints so far and this one.
  std::optional<TrainState::Evaluated> best_with(const TrainState& next) const;

 private:
  std::vector<std::filesystem::path> results() const;  // files of earlier runs
  void check_no_others() const;
  void check_open_files() const;
  void write_latest(int64_t step) const;  // writes `latest` under an unfinished name
  void move_latest() const;
  void set_results_aside() const;
  void remove_oldest(const TrainState& newest) const;
  void locate_damage(const std::function<void()>& work) const;
  void check_sums(std::vector<TensorFolderReader>& readers);

  std::filesystem::path folder_, source_;
  int64_t keep_, shard_bytes_;
  World& world_;
  bool overwrite_;
  std::vector<ShardFiles> files_;
  std::vector<TensorFolderLayout> layouts_;
  const ModelDocuments* documents_ = nullptr;
  Checksums sums_;    // checksums of the files of source_
  bool own_ = false;  // whether source_ is in folder_
  int64_t last_step_ = -1;
  std::optional<TrainState::Evaluated> best_;
};

}  // namespace flatshard
