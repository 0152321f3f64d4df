#include "ptx_vm/memory.h"

#include <algorithm>
#include <cstring>

#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint64_t kRedZone = 256, kAlignment = 256;
constexpr uint64_t kMappedBytes = uint64_t{2} << 20, kPage = 4096;  // a driver maps as much in whole pages
constexpr uint64_t kQuarantineBytes = uint64_t{256} << 20;          // of freed memory that stays known

}  // namespace

Heap& heap() {
  // Modules register their variables before main and are never ended in order, so neither is this.
  static Heap* const only = new Heap;
  return *only;
}

Allocation& Heap::insert(Allocation allocation) {
  live_bytes_ += allocation.bytes;
  auto& slot = allocations_[allocation.begin];
  slot = std::make_unique<Allocation>(std::move(allocation));
  return *slot;
}

void* Heap::allocate(Allocation::Kind kind, uint64_t bytes, std::string name) {
  const bool is_device = kind == Allocation::Kind::device;
  Allocation a{.kind = kind,
               .name = std::move(name),
               .begin = 0,
               .bytes = bytes,
               .state = {},
               .whole = {},
               .races = RaceShadow(),
               .storage = {}};
  if (a.name.empty())
    a.name = str(is_device ? "device" : "pinned", " allocation ", ++made_, " of ", bytes, " bytes");
  const uint64_t alignment = bytes >= kMappedBytes ? kPage : kAlignment;
  a.storage = std::make_unique_for_overwrite<unsigned char[]>(bytes + 2 * kRedZone + alignment);
  a.begin = (reinterpret_cast<uint64_t>(a.storage.get()) + kRedZone + alignment - 1) / alignment * alignment;
  std::memset(reinterpret_cast<void*>(a.begin), is_device ? 0xff : 0, bytes);
  a.state.assign(bytes, is_device ? kUnwritten : kWritten);
  a.whole.assign(bytes / kWholeBytes + 1, 0);
  return reinterpret_cast<void*>(insert(std::move(a)).begin);
}

void Heap::add_registered(void* data, uint64_t bytes) {
  Allocation a{.kind = Allocation::Kind::registered,
               .name = str("registered memory of ", bytes, " bytes"),
               .begin = reinterpret_cast<uint64_t>(data),
               .bytes = bytes,
               .state = {},
               .whole = {},
               .races = RaceShadow(),
               .storage = {}};
  a.state.assign(bytes, kWritten);
  a.whole.assign(bytes / kWholeBytes + 1, 0);
  insert(std::move(a));
}

bool Heap::release(void* data) {
  const auto found = allocations_.find(reinterpret_cast<uint64_t>(data));
  if (found == allocations_.end() || !found->second->is_live) return false;
  Allocation& a = *found->second;
  live_bytes_ -= a.bytes;
  if (a.kind == Allocation::Kind::registered) {
    allocations_.erase(found);
    return true;
  }
  a.is_live = false;
  a.races.clear();
  freed_.push_back(a.begin);
  freed_bytes_ += a.bytes;
  forget_old();
  return true;
}

void Heap::forget_old() {
  size_t count = 0;
  for (; count < freed_.size() && freed_bytes_ > kQuarantineBytes; ++count) {
    const auto oldest = allocations_.find(freed_[count]);
    freed_bytes_ -= oldest->second->bytes;
    allocations_.erase(oldest);
  }
  freed_.erase(freed_.begin(), freed_.begin() + static_cast<ptrdiff_t>(count));
}

Allocation* Heap::find(uint64_t address) {
  auto after = allocations_.upper_bound(address);
  if (after == allocations_.begin()) return nullptr;
  Allocation* a = std::prev(after)->second.get();
  return a->contains(address) ? a : nullptr;
}

Allocation* Heap::nearest(uint64_t address) {
  if (Allocation* a = find(address)) return a;
  auto after = allocations_.upper_bound(address);
  if (after != allocations_.begin())
    if (Allocation* a = std::prev(after)->second.get(); address - a->end() < kRedZone) return a;
  if (after != allocations_.end() && after->second->begin - address <= kRedZone) return after->second.get();
  return nullptr;
}

void Heap::mark_written(const void* data, uint64_t bytes) {
  const auto address = reinterpret_cast<uint64_t>(data);
  if (Allocation* a = find(address)) {
    const uint64_t offset = address - a->begin;
    std::memset(a->state.data() + offset, kWritten, std::min(bytes, a->bytes - offset));
  }
}

void Heap::copy_marks(const void* to, const void* from, uint64_t bytes) {
  const auto source = reinterpret_cast<uint64_t>(from), target = reinterpret_cast<uint64_t>(to);
  Allocation *a = find(source), *b = find(target);
  if (!a) return mark_written(to, bytes);
  if (!b) return;
  const uint64_t count = std::min({bytes, a->end() - source, b->end() - target});
  std::memmove(b->state.data() + (target - b->begin), a->state.data() + (source - a->begin), count);
  std::fill(b->whole.begin(), b->whole.end(), 0);
}

}  // namespace flatshard::ptx_vm
