#pragma once
// Times saving and loading a checkpoint beside plain files of as many bytes. What is compared takes turns in
// one process, in the current folder; a time is that of the slowest rank, and a rank's part of a plain file
// is as large as its part of the checkpoint. Both are synced when they are written, and both are read when
// the system's cache has been told to forget them. Both go from and into memory that the process holds: what
// the system takes to hand out fresh pages is in neither. Saving goes on until the checkpoint is there, and
// is done at once or aside, from a copy, as training does; loading verifies all checksums. At last the
// checkpoint is read once more, as published weights, by rank 0 for all.

#include <string>

#include "bench/measure.h"
#include "comm/world.h"

namespace flatshard::bench {

struct CheckpointResult {
  int ranks = 1, samples = 0;
  int64_t bytes = 0;         // of all files with tensors
  Spread save, plain_write;  // seconds
  Spread aside, paid;        // of a save beside training, and of it those for which a step would stand still
  Spread load, plain_read;
  double save_rate = 0, load_rate = 0;  // as a share of the plain one's: medians over neighbours in time
  int64_t staging = 0;                  // bytes of a rank's staging buffer, and
  int64_t extra_memory =
      0;  // by how much a rank's memory grew in the first save; both of the rank that has most
  // By how much a rank but 0 grew, at most, while rank 0 read for it; the bytes of the model's largest unit.
  int64_t growth = 0, largest_unit = 0;
};

CheckpointResult measure_checkpoints(World& world, int samples);
std::string checkpoint_table(const CheckpointResult& result);

}  // namespace flatshard::bench
