#include "comm/moment_pages.h"

#include <algorithm>

#include "runtime/memory.h"

namespace flatshard {
namespace {

// A slot's bytes as a tensor like `home`.
Tensor like(const Tensor& bytes, const Tensor& home) {
  Tensor t = bytes.slice(0, home.bytes());
  t.dtype = home.dtype;
  t.shape = home.shape;
  return t;
}

}  // namespace

MomentPages::MomentPages(const std::vector<ParamList>& units, RankGroups groups, const UnitOptions& options,
                         UnitArenas arenas, std::optional<CopyStreams> copies)
    : from_(options.page_moments_from), copies_(copies) {
  if (!from_) return;
  check(copies_.has_value(), "paged moments need copy streams");
  std::array<int64_t, 2> most{};
  size_t turn = 0;
  for (const ParamList& params : units) {
    const FlatLayout layout = FlatLayout::trainable(params, groups.size, groups.count());
    if (layout.empty() || !holds(layout.shard_size())) continue;
    const int64_t bytes = layout.shard_size() * size_of(moment_dtype(layout, options));
    most[turn] = std::max(most[turn], bytes);
    turn = 1 - turn;
  }
  for (size_t i = 0; i < slots_.size(); ++i)
    for (Tensor* t : {&slots_[i].m, &slots_[i].v})
      if (most[i] > 0) *t = arenas.optimizer.alloc(DType::u8, {most[i]});
}

void MomentPages::record_home(Stream& stream) {
  if (from_) stream.record(home_);
}

Moments MomentPages::fetch(Stream& stream, const Moments& home) {
  if (!holds(home.m.size())) return home;
  Slot& slot = slots_[turn_];
  const Moments on_device{like(slot.m, home.m), like(slot.v, home.v)};
  Stream& in = copies_->to_device;
  in.wait(home_);      // initial moments are in host memory
  in.wait(slot.free);  // the slot's last tenant, and this unit's last update, are in host memory
  copy(in, on_device.m, home.m);
  copy(in, on_device.v, home.v);
  in.record(slot.arrived);
  stream.wait(slot.arrived);
  return on_device;
}

void MomentPages::store(Stream& stream, const Moments& home, const Moments& on_device) {
  if (!holds(home.m.size())) return;
  Slot& slot = slots_[turn_];
  stream.record(slot.updated);
  Stream& out = copies_->to_host;
  out.wait(slot.updated);
  copy(out, home.m, on_device.m);
  copy(out, home.v, on_device.v);
  out.record(slot.free);
  turn_ = 1 - turn_;
}

void MomentPages::finish(Stream& stream) {
  for (const Slot& slot : slots_) stream.wait(slot.free);
  turn_ = 0;
}

}  // namespace flatshard
