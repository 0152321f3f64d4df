#pragma once
// Random runs of models that read images: the subject, and the ways to divide it.

#include <cstdint>
#include <vector>

#include "tests/comm/settings.h"

namespace flatshard::test {

// The first `count` subjects of a seed. The number of ranks determines how each is divided; on one rank, each
// also runs undivided. Micro-batches have up to four lanes, and images have more rows than the text.
std::vector<Trial> image_trials(int ranks, uint64_t seed, int64_t count);

}  // namespace flatshard::test
