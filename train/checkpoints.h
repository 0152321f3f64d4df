#pragma once
// The checkpoints of a run, in its folder:
//   step-20/   model.safetensors, exp_avg.safetensors, exp_avg_sq.safetensors (shard_files.h), each cut into
//              several files with an index where it is large; config.json, train_state.json (train_state.h),
//              checksums of all these (checkpoint/checksums.h)
//   latest     one line: the name of the newest
// They do not know how many ranks there were, nor what was sharded: any number of ranks, of any strategy,
// goes on from them.
//
// A checkpoint is there or not. All ranks write their ranges into step-20.tmp and sync them; once every rank
// is through, rank 0 adds the checksums, syncs, gives the folder its name and then moves `latest`. Whatever
// ends the run in between leaves a step-20.tmp, which the next start reports and removes.

#include <filesystem>
#include <optional>
#include <string>

#include "checkpoint/checksums.h"
#include "comm/world.h"
#include "train/engine.h"
#include "train/shard_files.h"
#include "train/train_state.h"

namespace flatshard {

// All member functions but the plain questions are called by all ranks, and succeed, or throw the same Error,
// on all of them.
class Checkpoints {
 public:
  // Of `keep` checkpoints the oldest go first, but never the best nor the newest; 0 keeps all.
  Checkpoints(const RunSetup& setup, World& world);

  // Before the run touches its folder: removes what an interrupted save has left there, and finds and
  // verifies the checkpoint that `resume` asks for: "latest" of this folder, or the path of a checkpoint or
  // of a run. Nothing where resume is "": then the folder must have no checkpoints, lest two runs mix.
  std::optional<TrainState> begin(const std::string& resume);
  // The files that each checkpoint of this model will have, its config.json among them; before load() and
  // save().
  void plan(const Model& model, const std::string& config_json);
  // The tensors of the checkpoint that begin() found, after their names and shapes have been checked.
  void load(Engine& engine);

  struct Saved {
    std::string path;
    int64_t bytes;  // of all ranks
    double seconds;
  };
  // Between steps. Nothing is done where this step's checkpoint is there already. After an Error the
  // checkpoints are those from before.
  std::optional<Saved> save(TrainState state, Engine& engine);

  // The checkpoint that the run goes on from; empty where it begins anew.
  const std::filesystem::path& source() const { return source_; }

 private:
  std::filesystem::path find(const std::string& resume);
  void check_no_others() const;
  void add_sums(const TensorFolderLayout& layout, std::vector<BlockSums>& sums, Checksums& all) const;
  void commit(const TrainState& state, Checksums& sums) const;
  void point_latest_at(int64_t step) const;
  void remove_oldest(const TrainState& newest) const;

  std::filesystem::path folder_, source_;
  int64_t keep_, shard_bytes_;
  World& world_;
  std::vector<TensorFolderLayout> layouts_;  // as kShardFiles
  std::string config_json_;
  bool own_ = false;  // whether source_ lies in folder_
  int64_t last_step_ = -1;
  std::optional<TrainState::Evaluated> best_;
};

}  // namespace flatshard
