#pragma once
// The checkpoints of a run, in its folder:
//   step-20/   model.safetensors, exp_avg.safetensors, exp_avg_sq.safetensors (shard_files.h), each cut into
//              several files with an index where it is large; config.json, the companions that the model
//              began with (companions.h), train_state.json (train_state.h), checksums of all these
//              (checkpoint/checksums.h)
//   latest     one line: the name of the newest
// They do not know how many ranks there were, nor what was sharded: any number of ranks, of any strategy,
// goes on from them.
//
// A checkpoint is there or not. All ranks write their ranges into step-20.tmp and sync them (saver.h); once
// every rank is through, rank 0 adds the checksums, syncs, gives the folder its name and then moves `latest`,
// which it has written before.
// Whatever ends the run in between leaves a step-20.tmp, which the next start reports and removes. It refuses
// to start when there are files of others in it.

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

class Checkpoints {
 public:
  // Of `keep` checkpoints the oldest go first, but never the best nor the newest; 0 keeps all.
  Checkpoints(const RunSetup& setup, World& world);

  // Called by all ranks; succeeds, or throws the same Error, on all of them. The run holds its folder
  // (run_folder.h). Removes what an interrupted save has left there, and finds the checkpoint that `resume`
  // asks for and verifies all of it but the tensors: "latest" of this folder, or the path of a checkpoint or
  // of a run. Nothing where resume is "": then the folder must have no checkpoints, lest two runs mix.
  std::optional<TrainState> begin(const std::string& resume);
  // The files that each checkpoint of this model will have; the documents must outlive this. Before load()
  // and commit().
  void plan(const Model& model, const ModelDocuments& documents);
  // The tensors' files, in the order of kShardFiles.
  const std::vector<TensorFolderLayout>& layouts() const { return layouts_; }
  // As begin(). The tensors of the checkpoint that it found, after their names and shapes have been checked;
  // they are summed as they are read, and nothing is done with them if a sum is wrong.
  void load(Engine& engine);

  // Where a checkpoint is written before it is one.
  std::filesystem::path unfinished(int64_t step) const;
  // On rank 0, when all ranks have written and synced their ranges there: makes it the newest checkpoint.
  void commit(const TrainState& state, Checksums sums) const;
  // On all ranks: this one is the newest from now on.
  void have(const TrainState& state);

  // The checkpoint that the run goes on from; empty where it begins anew.
  const std::filesystem::path& source() const { return source_; }
  int64_t last_step() const { return last_step_; }  // of the newest in this folder; -1 where there is none
  // Of the checkpoints so far and this one.
  std::optional<TrainState::Evaluated> best_with(const TrainState& next) const;

 private:
  std::filesystem::path find(const std::string& resume);
  void check_no_others() const;
  void check_open_files() const;
  void write_latest(int64_t step) const;  // under an unfinished name
  void move_latest() const;
  void remove_oldest(const TrainState& newest) const;
  void or_find_damage(const std::function<void()>& work) const;
  void check_sums(std::vector<TensorFolderReader>& readers);

  std::filesystem::path folder_, source_;
  int64_t keep_, shard_bytes_;
  World& world_;
  std::vector<TensorFolderLayout> layouts_;  // as kShardFiles
  const ModelDocuments* documents_ = nullptr;
  Checksums sums_;    // of the files of source_
  bool own_ = false;  // whether source_ lies in folder_
  int64_t last_step_ = -1;
  std::optional<TrainState::Evaluated> best_;
};

}  // namespace flatshard
