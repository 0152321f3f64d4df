#pragma once
// Runs of models that read images, drawn at random: the subject and the ways to divide it.

#include <cstdint>
#include <vector>

#include "tests/comm/settings.h"

namespace flatshard::test {

// The first `count` subjects of a seed, each divided in a way that depends on the number of ranks, and on one
// rank also not divided. Micro-batches have up to four lanes, and images more rows than the text.
std::vector<Trial> image_trials(int ranks, uint64_t seed, int64_t count);

}  // namespace flatshard::test
