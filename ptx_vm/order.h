#pragma once
// Ordering by fences: accesses of a warp before its fence happened before accesses of another warp after the
// other warp's fence, if the second warp read, with a strong access, a value that the first wrote with a
// strong access after its fence. This allows the last block to combine the results of all blocks.

#include <cstdint>
#include <unordered_map>

namespace flatshard::ptx_vm {

struct Warp;
struct Op;

// A vector clock: for each warp, by serial, the latest time that happened before.
using Knowledge = std::unordered_map<uint32_t, uint32_t>;

// Reserves serials for actors: the warps and asynchronous works of all launches, in the order in which they
// run.
uint32_t take_serials(uint32_t count);

void merge(Knowledge& into, const Knowledge& from);
// Merges the knowledge into the warp's.
void learn(Warp& warp, const Knowledge& knowledge);

// Adds the knowledge of the warp or work, and its own accesses so far.
void publish(const Warp& warp, Knowledge& into);
bool knows(const Warp& warp, uint32_t serial, uint32_t time);

void fence(Warp& warp);
// Records an access with a strong op (atomic, volatile, relaxed or stronger); `writes` includes atomics.
void strong_access(Warp& warp, const Op& op, uint64_t address, bool reads, bool writes);

}  // namespace flatshard::ptx_vm
