#pragma once
// Times saving and loading a checkpoint, interleaved with plain files of the same size, in the current
// folder. Times are those of the slowest rank; each rank reads and writes as much of a plain file as of the
// checkpoint. Written files are synced, and evicted from the page cache before they are read. Buffers are
// allocated beforehand, so page faults are not measured. Synchronous and asynchronous saves are both timed
// until the checkpoint is complete; asynchronous saves write a copy, as in training. Loading verifies all
// checksums. Finally rank 0 reads the checkpoint as published weights for all ranks.

#include <string>

#include "bench/measure.h"
#include "comm/world.h"

namespace flatshard::bench {

struct CheckpointResult {
  int ranks = 1, samples = 0;
  int64_t bytes = 0;           // size of all tensor files
  Spread save, plain_write;    // seconds
  Spread async_save, blocked;  // an asynchronous save; its part that blocks a step
  Spread load, plain_read;
  double save_rate = 0, load_rate = 0;  // relative to plain files: median over pairs of neighboring samples
  // Bytes, maxima over the ranks: the staging buffer, and the growth of memory in the first save.
  int64_t staging = 0, extra_memory = 0;
  // Bytes: the largest growth of a rank other than 0 while rank 0 reads for all ranks; the size of the
  // largest unit.
  int64_t growth = 0, largest_unit = 0;
};

CheckpointResult measure_checkpoints(World& world, int samples);
std::string checkpoint_table(const CheckpointResult& result);

}  // namespace flatshard::bench
