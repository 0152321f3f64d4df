#pragma once
// The assignment of a global batch's lanes to ranks. A lane is a sum of gradients that one rank computes: in
// one micro-step, or in lane_steps micro-steps, whose parts are accumulated in place, in order. Only the sum
// over lanes is a tree (lane_sums.h).

#include "comm/slots.h"

namespace flatshard {

// The lane of the global batch to which a rank's lane `lane` of a micro-step belongs.
int64_t lane_of(const UnitOptions& options, RankGroups groups, int rank, int64_t micro, int64_t lane);

// The number of the part of a lane that a rank computes in a micro-step, counted over the global batch, lane
// by lane.
int64_t lane_part_of(const UnitOptions& options, RankGroups groups, int rank, int64_t micro, int64_t lane);

}  // namespace flatshard
