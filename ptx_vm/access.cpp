#include "ptx_vm/access.h"

#include <algorithm>

#include "ptx_vm/async_copy.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/request.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr int kLeastRun = 8;  // contiguous lanes that are checked together

void check_accessible(const Request& r, const unsigned char* state, uint64_t address) {
  if (any(kGap, state, r.bytes)) r.wrong(FindingKind::out_of_bounds, address, ", between two variables");
  if (any(kMbarrier, state, r.bytes))
    r.wrong(FindingKind::mbarrier_misuse, address,
            ", which belongs to a live mbarrier; mbarrier.inval must end it first");
  if (any(kInFlight, state, r.bytes))
    r.wrong(FindingKind::async_in_flight, address,
            str(", which ", describe_copy_to(r.warp, address, r.bytes),
                " copies asynchronously and has not waited for"));
}

// Whether these bytes have been written, or are written by this access.
bool pass_states(const Request& r, const Region& region, uint64_t offset, uint64_t address) {
  const bool alone = r.lanes == 1;
  unsigned char* state = region.state + offset;
  if (r.access != Access::write && !all_written(state, r.all_bytes())) [[unlikely]] {
    if (!alone) return false;
    check_accessible(r, state, address);
    r.wrong(FindingKind::uninitialised_read, address, ", which was never written");
  }
  if (r.writes()) {
    if (region.is_patchy && any(kTaboo, state, r.all_bytes())) [[unlikely]] {
      if (!alone) return false;
      check_accessible(r, state, address);
    }
    mark_written(state, r.all_bytes());
  }
  region.note_written(offset);
  return true;
}

// Checks and records the access at `address`, which is in bounds. False if one of several lanes is in error;
// they are then checked one by one.
bool pass(Request& r, const Region& region, uint64_t address) {
  const bool alone = r.lanes == 1;
  if (address & (r.bytes - 1)) [[unlikely]] {
    if (!alone) return false;
    r.wrong(FindingKind::misaligned_access, address, str(", address 0x", std::hex, address & ~kWindowMask));
  }
  const uint64_t offset = address - region.address;
  if (!region.is_whole(offset, r.all_bytes()) && !pass_states(r, region, offset, address)) [[unlikely]]
    return false;
  if (region.races && r.op.is_strong)
    for (uint32_t lane = 0; lane < r.lanes; ++lane)
      strong_access(r.warp, r.op, address + uint64_t{lane} * r.bytes, r.access != Access::write, r.writes());
  if (region.races) {
    const Span span{r.first_lane, r.lanes, address, offset + (region.address & 15), r.bytes};
    r.collides |= region.races->access(r.warp, r.op, span, r.writes());
    if (r.warp.is_async && !r.writes() && (address & kWindowMask) == kSharedWindow)
      region.races->check_proxy_fences(r.warp, span);
  }
  return true;
}

Region region_of(Launch& launch, Allocation& home) {
  return {home.begin,
          home.bytes,
          reinterpret_cast<unsigned char*>(home.begin),
          home.state.data(),
          launch.finds_races ? &home.races : nullptr,
          false,
          home.whole.data()};
}

unsigned char* at_global(Request& r, uint64_t address) {
  Launch& launch = *r.warp.block->launch;
  Allocation*& home = launch.last_touched[r.op.index];
  const auto holds = [&](const Allocation* a) {
    return a && address >= a->begin && r.all_bytes() <= a->bytes &&
           address - a->begin <= a->bytes - r.all_bytes();
  };
  if (!holds(home)) [[unlikely]] {
    Allocation* found = heap().find(address);
    if (!holds(found)) {
      if (r.lanes > 1) return nullptr;
      r.wrong(FindingKind::out_of_bounds, address);
    }
    if (!found->is_live) r.wrong(FindingKind::use_after_free, address, ", which has been freed");
    if (launch.finds_races && !launch.past.holds(found->made_by))
      r.wrong(FindingKind::stream_race, address, ", and nothing orders the access after the allocation");
    home = found;
  }
  return pass(r, region_of(launch, *home), address) ? reinterpret_cast<unsigned char*>(address) : nullptr;
}

// Memory of a window: shared, or a lane's own.
unsigned char* at_region(Request& r, const Region& region, uint64_t address) {
  if (address < region.address || r.all_bytes() > region.bytes ||
      address - region.address > region.bytes - r.all_bytes()) [[unlikely]] {
    if (r.lanes > 1) return nullptr;
    r.wrong(FindingKind::out_of_bounds, address);
  }
  return pass(r, region, address) ? region.data + (address - region.address) : nullptr;
}

Region shared_of(Block& block, uint64_t rank) {
  return {rank + kSharedWindow + kSharedBase,
          block.shared.size(),
          block.shared.data(),
          block.shared_state.data(),
          block.launch->finds_races ? &block.shared_races : nullptr,
          block.copies_in_flight > 0 || !block.mbarriers.empty() || !block.kernel().shared_gaps.empty()};
}

unsigned char* at_shared_of(Block& block, Request& r, uint64_t address) {
  return at_region(r, shared_of(block, address & kRankMask), address | kSharedWindow);
}

unsigned char* at_shared(Request& r, uint64_t address) {
  if (address & kRankMask) [[unlikely]] {
    if (r.lanes > 1) return nullptr;
    r.wrong(FindingKind::out_of_bounds, address | kSharedWindow, ", which is outside .shared::cta");
  }
  return at_shared_of(*r.warp.block, r, address);
}

// Of any block of the cluster.
unsigned char* at_cluster(Request& r, uint64_t address) {
  const int lane = r.first_lane < kLanes ? static_cast<int>(r.first_lane) : std::countr_zero(r.warp.active);
  return at_shared_of(home_of(r.warp, lane, address), r, address);
}

unsigned char* at_local(Request& r, uint64_t address) {
  const uint64_t size = r.warp.block->kernel().local_bytes, begin = r.first_lane * size;
  return at_region(r,
                   {kLocalWindow + kLocalBase, size, r.warp.local.data() + begin,
                    r.warp.local_state.data() + begin, nullptr},
                   address | kLocalWindow);
}

// Local memory that all lanes access at the same address: only the states of its bytes differ between lanes.
// False if a lane is in error.
bool resolve_own(const Request& r, const uint64_t* address, Places* places) {
  Warp& warp = r.warp;
  const uint64_t size = warp.block->kernel().local_bytes;
  const uint64_t offset = (address[0] | kLocalWindow) - (kLocalWindow + kLocalBase);
  uint64_t other = 0;
  for (uint32_t lane = 1; lane < kLanes; ++lane) other |= address[lane] ^ address[0];
  if (warp.active != kAllLanes || other || offset % r.bytes || offset > size || r.bytes > size - offset)
    return false;
  unsigned char *data = warp.local.data() + offset, *state = warp.local_state.data() + offset;
  for (uint32_t lane = 0; lane < kLanes; ++lane, data += size, state += size) {
    if (r.access == Access::write)
      mark_written(state, r.bytes);
    else if (!all_written(state, r.bytes))
      return false;
    places->data[lane] = data;
  }
  places->pattern = Places::Pattern::scattered;
  places->collides = false;
  return true;
}

unsigned char* at_parameter(Request& r, uint64_t address) {
  std::vector<unsigned char>& parameters = r.warp.block->launch->parameters;
  const uint64_t offset = address & ~kWindowMask;
  const bool is_inside = r.all_bytes() <= parameters.size() && offset <= parameters.size() - r.all_bytes();
  const bool is_aligned = (offset & (r.bytes - 1)) == 0;
  if (r.writes() || !is_inside || !is_aligned) [[unlikely]] {
    if (r.lanes > 1) return nullptr;
    r.wrong(is_aligned ? FindingKind::out_of_bounds : FindingKind::misaligned_access, offset | kParamWindow);
  }
  return parameters.data() + offset;
}

unsigned char* at_generic(Request& r, uint64_t address) {
  switch (address & kWindowMask) {
    case kSharedWindow:
      return at_cluster(r, address);
    case kLocalWindow:
      return at_local(r, address);
    case kParamWindow:
      return at_parameter(r, address);
    default:
      return at_global(r, address);
  }
}

using Place = unsigned char* (*)(Request&, uint64_t);

// All lanes together, if their addresses allow it; false if they must be checked one by one.
template <Place place>
bool resolve_together(Request& r, const uint64_t* address, Places* places) {
  const uint64_t stride = address[1] - address[0];
  if (r.warp.active != kAllLanes || (stride != 0 && stride != r.bytes) || (stride == 0 && r.writes()))
    return false;
  uint64_t other = 0;
  for (uint32_t lane = 0; lane < kLanes; ++lane) other |= address[lane] - (address[0] + lane * stride);
  if (other) return false;
  r.first_lane = stride ? 0 : Stamp::kManyLanes;
  r.lanes = stride ? kLanes : 1;
  places->data[0] = place(r, address[0]);
  if (!places->data[0]) return false;
  places->pattern = stride ? Places::Pattern::side_by_side : Places::Pattern::all_at_one;
  return true;
}

// The number of lanes from the first on whose memory is contiguous.
int run_length(const Request& r, const uint64_t* address, int first) {
  int end = first + 1;
  while (end < static_cast<int>(kLanes) && r.warp.active >> end & 1 &&
         address[end] == address[end - 1] + r.bytes)
    ++end;
  return end - first;
}

// Contiguous lanes together; if that finds an error, one by one.
template <Place place>
void resolve_run(Request& r, const uint64_t* address, int first, int lanes, Places* places) {
  r.first_lane = static_cast<uint32_t>(first);
  r.lanes = static_cast<uint32_t>(lanes);
  unsigned char* data = lanes > 1 ? place(r, address[first]) : nullptr;
  for (int lane = first; lane < first + lanes; ++lane) {
    if (data) {
      places->data[lane] = data + static_cast<uint32_t>(lane - first) * r.bytes;
      continue;
    }
    r.first_lane = static_cast<uint32_t>(lane);
    r.lanes = 1;
    places->data[lane] = place(r, address[lane]);
  }
}

// The same for scattered lanes within one known region.
template <Place place>
bool resolve_scattered(const Request& r, const uint64_t* address, Places* places) {
  Block& block = *r.warp.block;
  if constexpr (place == at_shared) return pass_scattered(r, shared_of(block, 0), address, places);
  if constexpr (place != at_global) return false;
  Allocation* home = block.launch->last_touched[r.op.index];
  return home && pass_scattered(r, region_of(*block.launch, *home), address, places);
}

template <Place place, bool kTogether>
void resolve_addresses(Request& r, const uint64_t* address, Places* places) {
  places->pattern = Places::Pattern::scattered;
  const bool is_plain = kTogether && r.access != Access::update;
  if (is_plain && (resolve_together<place>(r, address, places) ||
                   (run_length(r, address, std::countr_zero(r.warp.active)) < kLeastRun &&
                    resolve_scattered<place>(r, address, places)))) {
    places->collides = false;
    return;
  }
  for (uint32_t left = r.warp.active; left;) {
    const int first = std::countr_zero(left);
    const int lanes = is_plain ? run_length(r, address, first) : 1;
    resolve_run<place>(r, address, first, lanes, places);
    left &= ~static_cast<uint32_t>(((uint64_t{1} << lanes) - 1) << first);
  }
  places->collides = r.collides;
}

template <class Address, Place place, bool kTogether>
void resolve_all(Request r, uint32_t base_slot, Places* places) {
  const Address* base = r.warp.lanes<Address>(base_slot);
  uint64_t address[kLanes];
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    address[lane] = base[lane] + static_cast<uint64_t>(r.op.immediate);
  if (place == at_local && resolve_own(r, address, places)) return;
  resolve_addresses<place, kTogether>(r, address, places);
}

Request begin_access(Warp& warp, const Op& op, uint32_t bytes, Access access) {
  ++warp.step;
  if (access == Access::write) ++warp.block->launch->progress;
  return {warp, op, bytes, access};
}

}  // namespace

void Request::wrong(FindingKind kind, uint64_t address, const std::string& why) const {
  const char* verb = access == Access::read ? "reads " : access == Access::write ? "writes " : "updates ";
  const int lane = first_lane < kLanes ? static_cast<int>(first_lane) : std::countr_zero(warp.active);
  report(kind, warp, lane, str(verb, bytes, " bytes at ", describe_address(warp, address), why));
}

void Region::note_written(uint64_t offset) const {
  if (!whole) return;
  unsigned char& looks = whole[offset / kWholeBytes];
  if (looks == kIsWhole || ++looks % 16 != 0) return;
  const uint64_t begin = offset / kWholeBytes * kWholeBytes;
  looks = all_written(state + begin, std::min(kWholeBytes, this->bytes - begin)) ? kIsWhole : 0;
}

void resolve(Warp& warp, const Op& op, uint32_t base_slot, uint32_t bytes, Access access, Places* places) {
  const Request r = begin_access(warp, op, bytes, access);
  if (Launch& launch = *warp.block->launch; launch.counts) [[unlikely]]
    launch.counts->add_access(*launch.kernel_counts, warp, op, base_slot, bytes, access);
  switch (op.space) {
    case Space::global:
      return resolve_all<uint64_t, at_global, true>(r, base_slot, places);
    case Space::generic:
      return resolve_all<uint64_t, at_generic, false>(r, base_slot, places);
    case Space::param:
      return resolve_all<uint64_t, at_parameter, true>(r, base_slot, places);
    case Space::shared:
      return op.wide_address ? resolve_all<uint64_t, at_shared, true>(r, base_slot, places)
                             : resolve_all<uint32_t, at_shared, true>(r, base_slot, places);
    case Space::cluster:
      return op.wide_address ? resolve_all<uint64_t, at_cluster, true>(r, base_slot, places)
                             : resolve_all<uint32_t, at_cluster, true>(r, base_slot, places);
    case Space::local:
      return op.wide_address ? resolve_all<uint64_t, at_local, false>(r, base_slot, places)
                             : resolve_all<uint32_t, at_local, false>(r, base_slot, places);
  }
}

void resolve_shared(Warp& warp, const Op& op, const uint64_t* address, uint32_t bytes, Access access,
                    Places* places) {
  Request r = begin_access(warp, op, bytes, access);
  resolve_addresses<at_shared, true>(r, address, places);
}

unsigned char* touch(Warp& actor, Space space, uint64_t address, uint64_t bytes, Access access) {
  const Op& op = actor.block->kernel().code[actor.current];
  const uint64_t unit = std::min<uint64_t>(16, (address | bytes) & (0 - (address | bytes)));
  Request r{actor, op, static_cast<uint32_t>(unit), access};
  r.first_lane = static_cast<uint32_t>(std::countr_zero(actor.active));
  const auto place = space == Space::shared ? at_shared : space == Space::cluster ? at_cluster : at_global;
  unsigned char* first = nullptr;
  if (Counts* counts = actor.block->launch->counts; counts && space == Space::global)
    counts->add_piece(address, bytes, access);
  for (uint64_t done = 0; done < bytes;) {
    // A large part at once; if that finds an error, piece by piece.
    r.lanes = static_cast<uint32_t>(std::min(bytes - done, kWholeBytes) / unit);
    unsigned char* data = place(r, address + done);
    if (!data) {
      r.lanes = 1;
      data = place(r, address + done);
    }
    if (!first) first = data;
    done += r.all_bytes();
  }
  return first;
}

}  // namespace flatshard::ptx_vm
