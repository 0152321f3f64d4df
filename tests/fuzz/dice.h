#pragma once
// A sequence of random choices: a function of (seed, purpose, number).

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/rng.h"

namespace flatshard::test {

class Dice {
 public:
  Dice(uint64_t seed, const std::string& purpose, int64_t number)
      : bits_(seed, purpose, static_cast<uint64_t>(number)) {}
  size_t below(size_t bound) { return bits_.bits(next_++) % bound; }
  bool one_in(size_t n) { return below(n) == 0; }
  template <class T>
  const T& of(const std::vector<T>& items) {
    return items[below(items.size())];
  }

 private:
  RandomStream bits_;
  int64_t next_ = 0;
};

}  // namespace flatshard::test
