#include "comm/unit_resources.h"

#include "runtime/check.h"

namespace flatshard {

UnitResources::UnitResources(const std::vector<ParamList>& units, const std::vector<UnitRole>& roles,
                             Communicators communicators, const UnitOptions& unit_options,
                             UnitArenas unit_arenas, std::optional<CopyStreams> copies)
    : comms(communicators),
      options(unit_options),
      arenas(unit_arenas),
      gather_slots(units, roles, comms.groups(), options, arenas),
      gradient_slots(units, roles, comms.groups(), options, arenas),
      shards(units, comms.groups(), options, arenas, options.offload ? copies : std::nullopt),
      pages(units, comms.groups(), options, arenas, copies) {
  check(options.wire == DType::f32 || options.lanes == 1,
        "gradients of several lanes are sent as one fp32 sum, ", "not as ", options.wire);
  check(options.lane_steps == 1 || options.lanes == 1, "a lane of ", options.lane_steps,
        " micro-steps needs a rank of its own in each, but there are ", options.lanes, " lanes");
}

}  // namespace flatshard
