#pragma once
// Random numbers for tests that draw their settings.

#include <cstdint>
#include <random>

namespace flatshard::test {

using Random = std::mt19937_64;

inline int64_t below(Random& random, int64_t end) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
}

}  // namespace flatshard::test
