#pragma once
// cp.async.bulk and cp.reduce.async.bulk, which share their opcode with cp.async.

#include <array>
#include <string_view>

#include "ptx_vm/decode.h"
#include "ptx_vm/reduce.h"

namespace flatshard::ptx_vm {

inline constexpr std::array<std::string_view, 8> kReductions{"add", "min", "max", "and",
                                                             "or",  "xor", "inc", "dec"};

void decode_bulk(Decoder& d);
void decode_tensor_copy(Decoder& d, bool reduces);
void decode_map_prefetch(Decoder& d);
// Returns the index in kReductions; kNowhere for a copy.
uint32_t take_reduction(Decoder& d, bool reduces);
// Reductions of one address are serialized, in any order. Returns whether another order could change the
// result, and the kernel may not do that: then something must order them, as it does other accesses.
bool needs_order(const Warp& warp, uint32_t reduction, Element element);
// Takes a cache hint, which has no effect. Its operand is the last one.
void take_cache_hint(Decoder& d);

// The targets of a load: its shared-memory address, or with a multicast mask (a 16-bit slot) the same offset
// in each block of the mask.
struct LoadTarget {
  uint64_t to, barrier;
};
std::vector<LoadTarget> targets_of(const Warp& warp, int lane, uint32_t mask_slot, uint64_t to,
                                   uint64_t barrier);

}  // namespace flatshard::ptx_vm
