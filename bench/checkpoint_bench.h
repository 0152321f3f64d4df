#pragma once
// Times saving and loading a checkpoint, interleaved with plain files of the same size, in the current
// folder. A time is that of the slowest rank; each rank reads and writes as much of a plain file as of the
// checkpoint. Written files are synced, and evicted from the page cache before they are read. Buffers are
// allocated beforehand, so page faults are not measured. A save is timed until the checkpoint is complete,
// both synchronous and asynchronous, from a copy as training does; loading verifies all checksums. Finally
// the checkpoint is read as published weights, by rank 0 for all ranks.

#include <string>

#include "bench/measure.h"
#include "comm/world.h"

namespace flatshard::bench {

struct CheckpointResult {
  int ranks = 1, samples = 0;
  int64_t bytes = 0;           // in all tensor files
  Spread save, plain_write;    // seconds
  Spread async_save, blocked;  // an asynchronous save, and its part that blocks a step
  Spread load, plain_read;
  double save_rate = 0, load_rate = 0;  // relative to plain files: median over pairs of neighboring samples
  // Maxima over the ranks, in bytes: the staging buffer, and the growth of memory in the first save.
  int64_t staging = 0, extra_memory = 0;
  // The largest growth of a rank other than 0 while rank 0 reads for all; the size of the largest unit. In
  // bytes.
  int64_t growth = 0, largest_unit = 0;
};

CheckpointResult measure_checkpoints(World& world, int samples);
std::string checkpoint_table(const CheckpointResult& result);

}  // namespace flatshard::bench
