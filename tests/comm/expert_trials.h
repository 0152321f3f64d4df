#pragma once
// Random runs of mixtures of experts: the subject, and the ways to divide it, among them ranks that divide
// the experts.

#include <cstdint>
#include <vector>

#include "tests/comm/settings.h"

namespace flatshard::test {

// A mixture whose experts divide among up to eight ranks.
Config expert_config(const std::string& family);

// The first `count` subjects of a seed. The number of ranks determines how each is divided; on one rank, each
// also runs undivided.
std::vector<Trial> expert_trials(int ranks, uint64_t seed, int64_t count);

}  // namespace flatshard::test
