#pragma once
// A run's sharded tensors as files that know nothing of ranks. A checkpoint has three sets of files
// (checkpoint/tensor_folder.h), each with the tensors of the model under their Hugging Face names, in fp32:
//   model        masters; of frozen parameters their values
//   exp_avg      first moments of the trained parameters
//   exp_avg_sq   second moments
// What a rank owns of a tensor is one range of it; every rank writes and reads its own ranges, with no more
// memory than one block.

#include <array>
#include <string>

#include "checkpoint/tensor_folder.h"
#include "comm/world.h"
#include "train/models/model_folder.h"
#include "train/step/staging.h"

namespace flatshard {

struct ShardFiles {
  const char* stem;
  Tensor Owned::*of;  // what is in it
};

inline constexpr std::array<ShardFiles, 3> kShardFiles{
    {{kWeightsStem, &Owned::p}, {"exp_avg", &Owned::m}, {"exp_avg_sq", &Owned::v}}};

// Cut into files of `most_bytes`.
TensorFolderLayout layout_of(const ShardFiles& files, const Model& model, int64_t most_bytes);

// These ranges; the writer's layout is layout_of's. The stream serves where they are on a GPU.
void write_shards(TensorFolderWriter& writer, const ShardFiles& files, const std::vector<Owned>& owned,
                  Stream& stream);

// An Error unless a source has exactly the tensors of the layout, however they are cut into files; it names
// the first that is missing, of another shape or dtype, or unexpected.
void check_tensors(const TensorFolder& source, const TensorFolderLayout& layout);

// This rank's ranges of a unit's tensors, from a source that check_tensors has passed; `sum` says whether
// they are this rank's to sum. They have been added to what is read in the same order.
void add_shards(const TensorFolderReader& source, const ShardFiles& files, const ShardedUnit& unit,
                ReadStream& bytes);
void read_shards(TensorFolderReader& source, const ShardFiles& files, const ShardedUnit& unit, bool sum,
                 ReadStream& bytes, Stream& stream);

// Called by all ranks, which have written or read parts of these files: rank 0 gets the sums of all of them.
void collect_sums(World& world, const std::vector<BlockSums*>& files);

}  // namespace flatshard
