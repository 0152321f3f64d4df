#pragma once
// Paging of the optimizer's state: the tensors that page live in pinned host memory, and those of one unit at
// a time are on the device while the optimizer updates them. There are two slots on the device, and copies in
// both directions have streams of their own: the state of the next unit arrives, and that of the previous one
// leaves, while the kernels update a unit. The state of short shards stays on the device. Results do not
// depend on paging.

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

  // Whether the state of a shard of n elements is paged.
  bool holds(int64_t n) const { return from_ && n >= *from_; }

  // To be called after state in host memory was written on `stream`.
  void record_home(Stream& stream);
  // The state on the device, for kernels on `stream`: in the next slot if it is paged.
  OptimizerState fetch(Stream& stream, const UnitState& home);
  // Returns it to host memory after the kernels queued on `stream`. To be called before the next fetch().
  void store(Stream& stream, const UnitState& home, const OptimizerState& on_device);
  // `stream` waits until host memory has all state. The next fetch() begins with the first slot again, so
  // that a unit always has the same one: the wait for the slot is then also a wait for the unit's own copy.
  void finish(Stream& stream);

 private:
  struct Slot {
    OptimizerState state;  // bytes
    Event arrived, updated, free;
  };

  std::optional<int64_t> from_;
  std::optional<CopyStreams> copies_;
  std::array<Slot, 2> slots_;
  size_t turn_ = 0;
  Event home_;
};

}  // namespace flatshard
