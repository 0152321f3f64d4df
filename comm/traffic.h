#pragma once
// The bytes a rank receives in one optimizer step, by formula: in an all-gather or a reduce-scatter over n
// ranks, each rank receives (n - 1) / n of the tensor. Evaluations are not included.

#include "comm/slots.h"

namespace flatshard {

struct Traffic {
  int64_t gathered = 0;  // parameters
  int64_t reduced = 0;   // gradients

  Traffic& operator+=(const Traffic& other) {
    gathered += other.gathered;
    reduced += other.reduced;
    return *this;
  }
  bool operator==(const Traffic&) const = default;
};

// The traffic of a unit with these layouts. `gathers` is the number of times per step that a sharded unit
// must be gathered unless it stays, because a layer that needs it follows one that does not.
Traffic traffic_of(const FlatLayout& trainable, const FlatLayout& frozen, const UnitRole& role,
                   int64_t gathers, const UnitOptions& options, RankGroups groups);

}  // namespace flatshard
