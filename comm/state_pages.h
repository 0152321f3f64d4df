#pragma once
// Paging of the optimizer's state. Paged tensors are in pinned host memory; one unit's tensors at a time are
// on the device, while the optimizer updates them. There are two slots on the device and a copy stream for
// each direction, so the next unit's state arrives, and the previous unit's state leaves, while the kernels
// update a unit. The state of short shards stays on the device. Results do not depend on paging.

#include <array>
#include <optional>
#include <vector>

#include "comm/optimizer_kinds.h"
#include "comm/shard_placement.h"
#include "comm/slots.h"

namespace flatshard {

// The state of a unit's shard.
struct UnitState {
  const OptimizerKind& optimizer;
  int64_t elements;
  OptimizerState tensors;
};

class StatePages {
 public:
  // `copies` has streams if options.page_state_from is set.
  StatePages(const std::vector<ParamList>& units, RankGroups groups, const UnitOptions& options,
             UnitArenas arenas, std::optional<CopyStreams> copies);

  // Returns whether the state of a shard of n elements is paged.
  bool holds(int64_t n) const { return from_ && n >= *from_; }

  // To be called after state in host memory was written on `stream`.
  void record_home(Stream& stream);
  // The state on the device, for kernels on `stream`: in the next slot if it is paged.
  OptimizerState fetch(Stream& stream, const UnitState& home);
  // Copies the state back to host memory after the kernels queued on `stream`. To be called before the next
  // fetch().
  void store(Stream& stream, const UnitState& home, const OptimizerState& on_device);
  // Makes `stream` wait until host memory has all state. The next fetch() begins with the first slot again,
  // so a unit always gets the same slot, and the wait for the slot is also a wait for the unit's own copy.
  void finish(Stream& stream);

 private:
  struct Slot {
    OptimizerState state;  // tensors of bytes
    Event arrived, updated, free;
  };

  std::optional<int64_t> from_;
  std::optional<CopyStreams> copies_;
  std::array<Slot, 2> slots_;
  size_t turn_ = 0;
  Event home_;
};

}  // namespace flatshard
