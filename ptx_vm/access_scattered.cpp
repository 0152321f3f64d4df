// Accesses by lanes whose memory is not contiguous.

#include <algorithm>
#include <bit>

#include "ptx_vm/grid.h"
#include "ptx_vm/request.h"

namespace flatshard::ptx_vm {
namespace {

// Lanes that access the same address as an earlier lane, and those that a later lane repeats, as in tiles of
// matrix products.
struct Repeats {
  uint32_t later = 0, first = 0;
};
Repeats repeats_of(const uint64_t* offset, uint32_t active) {
  Repeats repeats;
  for (const uint32_t distance : {1, 2, 4, 8, 16}) {
    uint32_t same = 0;
    for (uint32_t lane = distance; lane < kLanes; ++lane)
      same |= static_cast<uint32_t>(offset[lane] == offset[lane - distance]) << lane;
    same &= active & active << distance;
    repeats.later |= same;
    repeats.first |= same >> distance;
  }
  return repeats;
}

// Whether these bytes have been written. Without a branch over all pieces, unless the region knows it for
// whole chunks.
template <uint32_t kBytes>
bool were_written(const Region& region, const Scatter& scatter) {
  const unsigned char* const state = region.state - (region.address & 15);
  bool is_right = true;
  for (uint32_t i = 0; i < scatter.pieces; ++i)
    is_right &= (region.whole && region.is_whole(scatter.offset[i] - (region.address & 15), kBytes)) ||
                all_written(state + scatter.offset[i], kBytes);
  return is_right;
}

// Marks them as written.
template <uint32_t kBytes>
bool mark_pieces(const Region& region, const Scatter& scatter) {
  for (uint32_t i = 0; i < scatter.pieces; ++i) {
    const uint64_t at = scatter.offset[i] - (region.address & 15);
    if (region.is_whole(at, kBytes)) continue;
    if (region.is_patchy && any(kTaboo, region.state + at, kBytes)) return false;
    mark_written(region.state + at, kBytes);
  }
  return true;
}

template <uint32_t kBytes>
bool pass_pieces(const Request& r, const Region& region, const Scatter& scatter) {
  return r.writes() ? mark_pieces<kBytes>(region, scatter) : were_written<kBytes>(region, scatter);
}

}  // namespace

bool pass_scattered(const Request& r, const Region& region, const uint64_t* address, Places* places) {
  if (r.op.is_strong || r.warp.is_async || region.bytes < r.bytes) return false;
  const uint32_t active = r.warp.active;
  const uint64_t window = region.address & kWindowMask, any_address = address[std::countr_zero(active)];
  uint64_t offset[kLanes], farthest = 0, bits = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) {
    const uint64_t at = (active >> lane & 1 ? address[lane] : any_address) | window;
    bits |= at;
    offset[lane] = at - region.address;  // huge if it is before the region
    farthest = std::max(farthest, offset[lane]);
  }
  if ((bits & (r.bytes - 1)) || farthest > region.bytes - r.bytes) return false;
  const Repeats repeats = repeats_of(offset, active);
  if (r.writes() && repeats.later) return false;
  Scatter scatter;
  scatter.bytes = r.bytes;
  const uint64_t lead = region.address & 15;
  if (active == kAllLanes && !repeats.later) {
    scatter.pieces = kLanes;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      scatter.offset[lane] = offset[lane] + lead;
      scatter.lane[lane] = lane;
    }
  } else {
    for_each_lane(active & ~repeats.later, [&](int lane) {
      scatter.offset[scatter.pieces] = offset[lane] + lead;
      scatter.lane[scatter.pieces++] =
          repeats.first >> lane & 1 ? Stamp::kManyLanes : static_cast<Mark>(lane);
    });
  }
  const bool is_right = r.bytes == 16  ? pass_pieces<16>(r, region, scatter)
                        : r.bytes == 8 ? pass_pieces<8>(r, region, scatter)
                        : r.bytes == 4 ? pass_pieces<4>(r, region, scatter)
                        : r.bytes == 2 ? pass_pieces<2>(r, region, scatter)
                                       : pass_pieces<1>(r, region, scatter);
  if (!is_right || (region.races && !region.races->access(r.warp, r.op, scatter, r.writes()))) return false;
  region.note_written(offset[std::countr_zero(active)]);
  for (uint32_t lane = 0; lane < kLanes; ++lane) places->data[lane] = region.data + offset[lane];
  return true;
}

}  // namespace flatshard::ptx_vm
