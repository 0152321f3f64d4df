#pragma once
// The communication units of a run as a table: parameters, shard size, and bytes that a rank receives per
// step. Computed from formulas (comm/traffic.h), without allocating anything.

#include <string>
#include <vector>

#include "comm/traffic.h"
#include "train/setup/run_setup.h"

namespace flatshard {

// A unit, or a run of equal units whose names differ in one consecutive number: model.layers.0-11.
struct UnitRow {
  std::string name;
  int64_t units = 1;
  // Totals over the units of the row:
  int64_t parameters = 0;
  int64_t shard = 0;  // elements of a rank's shard, in the compute dtype, with padding
  Traffic traffic{};  // bytes received by each rank per step
};

struct UnitTable {
  std::vector<UnitRow> rows;
  UnitRow all;
  Bytes norm{};  // bytes received per step for the gradient norm
  int64_t micro_steps = 1;
  std::string warning{};  // set if the wrap policy covers too few parameters

  // The bytes received by each rank per step.
  Bytes bytes() const {
    Bytes sum = norm;
    sum += all.traffic.gathered;
    sum += all.traffic.reduced;
    return sum;
  }
};

// The table of a rank whose communicators have these levels.
UnitTable unit_table(const Wrapping& wrapping, const Schedule& schedule, const RunSetup& setup,
                     const RankLevels& levels);

}  // namespace flatshard
