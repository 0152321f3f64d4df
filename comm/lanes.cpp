#include "comm/lanes.h"

namespace flatshard {

int64_t lane_of(const UnitOptions& options, RankGroups groups, int rank, int64_t micro, int64_t lane) {
  const int64_t group = groups.group_of(rank), place = groups.index_in_group(rank),
                round = micro / options.lane_steps;
  // The outermost index is the one that is summed last.
  const int64_t turn = sums_are_unsharded(options, groups)
                           ? (group * groups.size + place) * options.lane_rounds() + round
                           : (group * options.lane_rounds() + round) * groups.size + place;
  return turn * options.lanes + lane;
}

int64_t lane_part_of(const UnitOptions& options, RankGroups groups, int rank, int64_t micro, int64_t lane) {
  return lane_of(options, groups, rank, micro, lane) * options.lane_steps + micro % options.lane_steps;
}

}  // namespace flatshard
