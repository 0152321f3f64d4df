#pragma once
// cp.async.bulk and cp.reduce.async.bulk, which share their opcode with cp.async.

#include <array>
#include <string_view>

#include "tests/ptx_vm/decode.h"
#include "tests/ptx_vm/reduce.h"

namespace flatshard::ptx_vm {

inline constexpr std::array<std::string_view, 8> kReductions{"add", "min", "max", "and",
                                                             "or",  "xor", "inc", "dec"};

void decode_bulk(Decoder& d);
void decode_tensor_copy(Decoder& d, bool reduces);
void decode_map_prefetch(Decoder& d);
// Which of kReductions; kNowhere for a copy.
uint32_t take_reduction(Decoder& d, bool reduces);
// Sums of floats in global memory have to be allowed.
void check_reduction(const Warp& warp, int lane, uint32_t reduction, Element element, uint64_t address);
// A hint changes nothing; its operand is the last.
void take_cache_hint(Decoder& d);

// What a load goes to: the shared memory that its address names, or where there is a mask (a slot of 16 bits)
// the same place in each block of it.
struct LoadTarget {
  uint64_t to, barrier;
};
std::vector<LoadTarget> targets_of(const Warp& warp, int lane, uint32_t mask_slot, uint64_t to,
                                   uint64_t barrier);

}  // namespace flatshard::ptx_vm
