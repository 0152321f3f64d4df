#pragma once
// Order by fences: what a warp did before a fence happened before what another does after its own fence, once
// the second has read, with a strong access, what the first wrote with one after its fence. So the last of
// several blocks may add what the others left.

#include <cstdint>
#include <unordered_map>

namespace flatshard::ptx_vm {

struct Warp;
struct Op;

// Up to when each warp, by its serial, happened before.
using Knowledge = std::unordered_map<uint32_t, uint32_t>;

// Numbers for actors: of warps and asynchronous works, of all launches in the order they run.
uint32_t take_serials(uint32_t count);

void merge(Knowledge& into, const Knowledge& from);
// A warp learns it: of warps of its own block and of others.
void learn(Warp& warp, const Knowledge& knowledge);

// Into it goes what the warp or work knows and did.
void publish(const Warp& warp, Knowledge& into);
bool knows(const Warp& warp, uint32_t serial, uint32_t time);

void fence(Warp& warp);
// An access with a strong op (atomic, volatile, relaxed and above) to one address; `writes` includes atomics.
void strong_access(Warp& warp, const Op& op, uint64_t address, bool reads, bool writes);

}  // namespace flatshard::ptx_vm
