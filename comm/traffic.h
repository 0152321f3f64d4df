#pragma once
// How many bytes a rank receives in one optimizer step, by formula. Where n ranks put a tensor together, or
// cut one up, each of them receives (n - 1) / n of it. Evaluations are not counted.

#include "comm/slots.h"

namespace flatshard {

struct Traffic {
  int64_t gathered = 0;  // values to compute with
  int64_t reduced = 0;   // gradients

  Traffic& operator+=(const Traffic& other) {
    gathered += other.gathered;
    reduced += other.reduced;
    return *this;
  }
  bool operator==(const Traffic&) const = default;
};

// Of a unit with these layouts. `passes` counts the times in a micro-step that stages come to need its values
// after others that do not.
Traffic traffic_of(const FlatLayout& trainable, const FlatLayout& frozen, const UnitRole& role, int passes,
                   const UnitOptions& options, RankGroups groups);

}  // namespace flatshard
