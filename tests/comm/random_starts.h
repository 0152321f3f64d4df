#pragma once
// Random runs on records, from model folders and GGUF files. The history of their folder is random, too:
// whether it already has tokens and a reference, and the inputs of these.

#include <cstdint>
#include <iosfwd>

#include "comm/world.h"

namespace flatshard::test {

// Makes `count` starts of a seed. The number of ranks also determines how they are divided, and their
// histories. Prints a line for each with the hash of the weights, which must not depend on the number of
// ranks. On one rank every start also runs undivided in a new folder; returns false if the hashes differ.
bool random_starts_hold(World& world, uint64_t seed, int64_t count, std::ostream& out);

}  // namespace flatshard::test
