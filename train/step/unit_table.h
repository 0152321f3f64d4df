#pragma once
// The units of a run as a table: what travels as one, what of it each rank owns, and what a rank receives for
// it in a step. All of it is arithmetic (comm/traffic.h): nothing needs to be allocated.

#include <string>
#include <vector>

#include "comm/traffic.h"
#include "train/config/run_setup.h"

namespace flatshard {

// A unit, or equal units whose names differ in one number that counts up: model.layers.0-11.
struct UnitRow {
  std::string name;
  int64_t units = 1;
  // Of all units of the row together:
  int64_t parameters = 0;
  int64_t shard = 0;  // elements on each rank, padding included
  Traffic traffic{};  // bytes that each rank receives in a step
};

struct UnitTable {
  std::vector<UnitRow> rows;
  UnitRow all;
  int64_t norm_bytes = 0;  // received in a step for the norm of the gradients
  int64_t micro_steps = 1;
  std::string warning{};  // of a wrap that takes too little; "" where all is well

  // What a rank receives in a step.
  int64_t bytes() const { return all.traffic.gathered + all.traffic.reduced + norm_bytes; }
};

UnitTable unit_table(const Wrapping& wrapping, const RunSetup& setup);

// How often in a micro-step, forward and backward, a stage that needs the unit follows one that does not.
int passes_over(const Wrapping& wrapping, int unit);

}  // namespace flatshard
