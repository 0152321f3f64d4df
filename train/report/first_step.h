#pragma once
// What each rank tells after the first step, in the run folder's step1.txt: its memory, the size and the
// first row of its mini-batch, and what it owns of every unit. One look shows whether ranks got different
// data and equal shares.

#include <string>

#include "train/step/engine.h"

namespace flatshard {

struct FirstStep {
  std::string brief;  // three lines: memory, mini-batch, first row
  std::string units;  // a line for each unit
};

FirstStep first_step(const RunSetup& setup, int rank, const Data& data, Engine& engine);

// [5, 6, 7, 8, ..., 1, 2, 3, 4]: all where they are few, otherwise the first and the last of them.
std::string ends_of(std::span<const int32_t> row);

}  // namespace flatshard
