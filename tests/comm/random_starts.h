#pragma once
// Runs from model folders and GGUF files on records, drawn at random with what has happened in their folder
// before: whether tokens and a reference are there already, and of which inputs.

#include <cstdint>
#include <iosfwd>

#include "comm/world.h"

namespace flatshard::test {

// Makes `count` starts of a seed, in ways to divide them and with histories that the number of ranks decides,
// too. Prints a line with the hash of the weights for each, which must not depend on the number of ranks. On
// one rank every start is also made in a new folder, undivided: false if a hash differs from that.
bool random_starts_hold(World& world, uint64_t seed, int64_t count, std::ostream& out);

}  // namespace flatshard::test
