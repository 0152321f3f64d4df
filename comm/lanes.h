#pragma once
// The assignment of a global batch's lanes to ranks. A lane is a sum of gradients that one rank computes:
// over one micro-batch, or over lane_steps micro-batches that are accumulated in place, in order. Only the
// sum over lanes is a tree (lane_sums.h).

#include "comm/slots.h"

namespace flatshard {

// The lane of the global batch to which a rank's lane `lane` of a micro-step belongs.
int64_t lane_of(const UnitOptions& options, RankGroups groups, int rank, int64_t micro, int64_t lane);

// The number of a lane's micro-batch in a micro-step, counted over the global batch lane by lane.
int64_t micro_batch_of(const UnitOptions& options, RankGroups groups, int rank, int64_t micro, int64_t lane);

}  // namespace flatshard
