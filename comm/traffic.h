#pragma once
// The bytes that a rank receives in one optimizer step, by formula: in an exchange of n ranks, each receives
// (n - 1) / n of the tensor. Evaluations are not included.

#include <ostream>

#include "comm/levels.h"
#include "comm/slots.h"

namespace flatshard {

// The bytes received inside a host and between hosts, averaged over the ranks of a host.
struct Bytes {
  int64_t inside = 0, between = 0;

  int64_t all() const { return inside + between; }
  Bytes& operator+=(const Bytes& other) {
    inside += other.inside;
    between += other.between;
    return *this;
  }
  Bytes operator*(int64_t times) const { return {inside * times, between * times}; }
  bool operator==(const Bytes&) const = default;
};

// Prints the bytes inside a host and between hosts, such as "12 + 34".
std::ostream& operator<<(std::ostream& out, const Bytes& bytes);

struct Traffic {
  Bytes gathered;  // parameters
  Bytes reduced;   // gradients

  Traffic& operator+=(const Traffic& other) {
    gathered += other.gathered;
    reduced += other.reduced;
    return *this;
  }
  Traffic operator*(int64_t times) const { return {gathered * times, reduced * times}; }
  bool operator==(const Traffic&) const = default;
};

// The traffic of a unit with these layouts. `gathers` is the number of times per step that a layer that needs
// the unit follows one that does not, so that a sharded unit must be gathered unless it stays gathered.
Traffic traffic_of(const FlatLayout& trainable, const FlatLayout& frozen, const UnitRole& role,
                   int64_t gathers, const UnitOptions& options, const RankLevels& levels);

// The bytes received in an all-gather of `bytes` from all ranks.
Bytes received_in_gather(int64_t bytes, const Levels& levels);

}  // namespace flatshard
