#include "ptx_vm/order.h"

#include <algorithm>

#include "ptx_vm/grid.h"
#include "ptx_vm/memory.h"

namespace flatshard::ptx_vm {

uint32_t take_serials(uint32_t count) {
  static uint32_t next = 1;
  const uint32_t first = next;
  next += count;
  return first;
}

void merge(Knowledge& into, const Knowledge& from) {
  for (const auto& [serial, time] : from) {
    uint32_t& known = into[serial];
    known = std::max(known, time);
  }
}

void learn(Warp& warp, const Knowledge& knowledge) {
  for (const auto& [serial, time] : knowledge) {
    const uint32_t index = serial - warp.block->first_serial();
    uint32_t& known = index < warp.known.size() ? warp.known[index] : warp.known_elsewhere[serial];
    if (serial != warp.serial) known = std::max(known, time);
  }
}

void publish(const Warp& warp, Knowledge& into) {
  merge(into, warp.known_elsewhere);
  const auto add = [&](uint32_t serial, uint32_t time) { into[serial] = std::max(into[serial], time); };
  for (uint32_t w = 0; w < warp.known.size(); ++w)
    if (warp.known[w]) add(warp.block->first_serial() + w, warp.known[w]);
  if (warp.is_async) add(warp.serial, warp.time());
}

bool knows(const Warp& warp, uint32_t serial, uint32_t time) {
  const uint32_t index = serial - warp.block->first_serial();  // huge for other blocks
  if (index < warp.known.size()) return time <= warp.known[index];
  const auto known = warp.known_elsewhere.find(serial);
  return known != warp.known_elsewhere.end() && time <= known->second;
}

void fence(Warp& warp) {
  learn(warp, warp.observed);
  warp.observed.clear();
  warp.fenced.clear();
  publish(warp, warp.fenced);
  warp.advance();
}

void strong_access(Warp& warp, const Op& op, uint64_t address, bool reads, bool writes) {
  // Shared memory has the same addresses in every block.
  const bool is_shared = (address & kWindowMask) == kSharedWindow;
  const uint64_t place =
      is_shared ? address_in_block(address) | uint64_t{home_of(warp, 0, address).first_serial()} << kRankShift
                : address;
  auto& published = warp.block->launch->published;
  if (op.releases) fence(warp);
  if (reads)
    if (const auto found = published.find(place); found != published.end())
      merge(warp.observed, found->second);
  if (writes && !warp.fenced.empty()) merge(published[place], warp.fenced);
  if (op.acquires) fence(warp);
}

}  // namespace flatshard::ptx_vm
