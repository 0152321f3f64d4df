#pragma once
// Paging of optimizer moments: they live in pinned host memory, and one unit's moments at a time are on the
// device while the optimizer updates them. There are two slots on the device, and copies in both directions
// have streams of their own: the moments of the next unit arrive, and those of the previous one leave, while
// the kernels update a unit. Moments of short shards stay on the device. Results do not depend on paging.

#include <array>
#include <optional>
#include <vector>

#include "comm/shard_placement.h"
#include "comm/slots.h"

namespace flatshard {

// The moments of a unit's shard: fp32 values, or codes of 8 bits.
struct Moments {
  Tensor m, v;
};

class MomentPages {
 public:
  // `copies` has streams if options.page_moments_from is set.
  MomentPages(const std::vector<ParamList>& units, RankGroups groups, const UnitOptions& options,
              UnitArenas arenas, std::optional<CopyStreams> copies);

  // Whether the moments of a shard of n elements are paged.
  bool holds(int64_t n) const { return from_ && n >= *from_; }

  // To be called after moments in host memory were written on `stream`.
  void record_home(Stream& stream);
  // The moments on the device, for kernels on `stream`: in the next slot if they are paged.
  Moments fetch(Stream& stream, const Moments& home);
  // Returns them to host memory after the kernels queued on `stream`. To be called before the next fetch().
  void store(Stream& stream, const Moments& home, const Moments& on_device);
  // `stream` waits until host memory has all moments. The next fetch() begins with the first slot again, so
  // that a unit always has the same one: the wait for the slot is then also a wait for the unit's own copy.
  void finish(Stream& stream);

 private:
  struct Slot {
    Tensor m, v;  // bytes
    Event arrived, updated, free;
  };

  std::optional<int64_t> from_;
  std::optional<CopyStreams> copies_;
  std::array<Slot, 2> slots_;
  size_t turn_ = 0;
  Event home_;
};

}  // namespace flatshard
