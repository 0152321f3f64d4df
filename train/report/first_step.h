#pragma once
// Each rank's report after the first step, written to step1.txt in the run folder: its memory, the size and
// the first row of its mini-batch, and its shard of every unit. It shows whether ranks read different data
// and own equal shards.

#include <string>

#include "comm/world.h"
#include "train/step/engine.h"

namespace flatshard {

struct FirstStep {
  std::string brief;  // three lines: memory, mini-batch, first row
  std::string units;  // a line for each unit
};

FirstStep first_step(const RunSetup& setup, int rank, const Data& data, Engine& engine);

// [5, 6, 7, 8, ..., 1, 2, 3, 4]: all tokens of a short row, otherwise the first and last four.
std::string ends_of(std::span<const int32_t> row);

// The texts of all ranks, in order, on rank 0. Call on all ranks.
FirstStep of_all_ranks(FirstStep mine, World& world);

}  // namespace flatshard
