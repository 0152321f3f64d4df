#pragma once
// A run's sharded tensors as files that do not depend on the ranks. A checkpoint of AdamW has three sets
// (checkpoint/tensor_folder.h), each with the model's tensors under their Hugging Face names, in fp32:
//   model        masters of the trained parameters, values of the frozen ones
//   exp_avg      first moments of the trained parameters
//   exp_avg_sq   second moments
// The sets of moments are declared by the optimizer's row (comm/optimizer_kinds.h). A moment of 8 bits is a
// U8 tensor of codes under the parameter's name, beside NAME.absmax with a value for every 256 elements
// (kernels/adamw8bit.h). For a model with adapters, only its trained parameters are stored, and instead of
// model the first set is
//   adapter_model   masters of the trained parameters, by PEFT's names
// with embedding and head if their vocabulary has grown, as in PEFT.
//
// A rank's shard of a tensor is one range of it. Every rank writes and reads its own ranges, with memory for
// one block.

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/tensor_folder.h"
#include "comm/world.h"
#include "hub/adapter_folder.h"
#include "hub/model_folder.h"
#include "train/step/staging.h"

namespace flatshard {

struct ShardFiles {
  const char* stem;
  bool weights;          // masters and frozen values; false: the states named by the stem
  std::string adapts{};  // the family of the base, in the files of an adapter
  // The parameters it has tensors for, each with the optimizer of its unit; null in the set of weights.
  std::map<std::string, const OptimizerKind*> params{};

  std::string tensor_name(const std::string& parameter) const;
};

// The sets of a model's checkpoints; the weights first. `grown`: the vocabulary is larger than that of the
// model that the run started from.
std::vector<ShardFiles> shard_files(Engine& engine, bool grown);

// The stems of the sets in a checkpoint, and of all sets that a checkpoint can have; the weights first. A
// folder without train_state.json has only weights.
std::vector<const char*> stems_in(const std::filesystem::path& checkpoint);
std::vector<const char*> all_stems();

// The layout of one set, split at `most_bytes`.
TensorFolderLayout layout_of(const ShardFiles& files, const Model& model, int64_t most_bytes);

// Writes these ranges; the writer must use the layout of layout_of(). The stream copies them if they are on a
// GPU.
void write_shards(TensorFolderWriter& writer, const ShardFiles& files, const std::vector<Owned>& owned,
                  Stream& stream);

// An Error unless the source has exactly the tensors of the layout, however they are split into files. It
// names the first that is missing, has a wrong shape or dtype, or is unexpected.
void check_tensors(const TensorFolder& source, const TensorFolderLayout& layout);

// Read this rank's ranges of a unit's tensors from a source that check_tensors() accepted. First queue the
// ranges of all units with add_shards(), then read them in the same order. `sum`: this rank checksums them.
void add_shards(const TensorFolderReader& source, const ShardFiles& files, const ShardedUnit& unit,
                ReadStream& bytes);
void read_shards(TensorFolderReader& source, const ShardFiles& files, const ShardedUnit& unit, bool sum,
                 ReadStream& bytes, Stream& stream);

// Call on all ranks after they have written or read their parts of these files: rank 0 gets the merged sums.
void collect_sums(World& world, const std::vector<BlockSums*>& files);

}  // namespace flatshard
