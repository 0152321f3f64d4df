#pragma once
// A run's sharded tensors as files that know nothing of ranks. A checkpoint has three, each with the tensors
// of the model under their Hugging Face names, in fp32:
//   model.safetensors        masters; of frozen parameters their values
//   exp_avg.safetensors      first moments of the trained parameters
//   exp_avg_sq.safetensors   second moments
// What a rank owns of a tensor is one range of it; every rank writes and reads its own ranges, with no more
// memory than one block. Where shards have replicas, these take turns by unit, so that all write equally
// much.

#include <array>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "train/engine.h"

namespace flatshard {

struct ShardFile {
  const char* name;
  Tensor ShardedUnit::Shard::*of;  // what of a shard is in it
};

inline constexpr std::array<ShardFile, 3> kShardFiles{{{"model.safetensors", &ShardedUnit::Shard::p},
                                                       {"exp_avg.safetensors", &ShardedUnit::Shard::m},
                                                       {"exp_avg_sq.safetensors", &ShardedUnit::Shard::v}}};

SafetensorsLayout layout_of(const ShardFile& file, const Model& model);

// This rank's ranges; the writer's layout is layout_of's.
void write_shards(SafetensorsWriter& writer, const SafetensorsLayout& layout, const ShardFile& file,
                  Engine& engine);

// An Error unless a file has exactly the tensors of the layout; it names the first that is missing, of
// another shape or dtype, or unexpected.
void check_tensors(const SafetensorsFile& file, const SafetensorsLayout& layout);

// This rank's ranges of a unit's tensors, from a file that check_tensors has passed.
void read_shards(const SafetensorsFile& source, const ShardFile& file, const ShardedUnit& unit,
                 Stream& stream);

}  // namespace flatshard
