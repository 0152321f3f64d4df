#include "comm/slots.h"

#include <algorithm>

namespace flatshard {
namespace {

// The largest of a number over the units for which `counts` holds; 0 where there are none.
template <class Counts, class Size>
int64_t largest(const std::vector<UnitRole>& roles, Counts&& counts, Size&& size) {
  int64_t most = 0;
  for (const UnitRole& role : roles)
    if (counts(role)) most = std::max(most, size(role));
  return most;
}

}  // namespace

bool writes_sums_directly(const UnitOptions& options, RankGroups groups) {
  return options.lanes == 1 && options.wire == DType::f32 && sums_are_whole(options, groups);
}

GatherRoom::GatherRoom(const std::vector<ParamList>& units, const std::vector<UnitRole>& roles,
                       RankGroups groups, const UnitOptions& options, UnitArenas arenas)
    : keep_root_(options.keep_root) {
  if (!options.policy.params || groups.size == 1) return;
  const auto size_in = [&](Segment segment) {
    return [&, segment](const UnitRole& role) {
      return FlatLayout(units[static_cast<size_t>(role.index)], segment, groups.size, groups.count()).size();
    };
  };
  const auto make_slot = [&](auto&& counts) {
    const auto room = [&](Segment segment) {
      const int64_t size = largest(roles, counts, size_in(segment));
      return size == 0 ? Tensor{} : arenas.gathered.alloc(options.compute, {size});
    };
    ValueSlot slot;
    slot.trainable = room(Segment::trainable);
    slot.frozen = room(Segment::frozen);
    return slot;
  };
  for (int i = 0; i < options.gather_slots; ++i)
    ring_.push_back(make_slot([](const UnitRole& role) { return !role.root; }));
  if (!keep_root_) {
    roots_.push_back(make_slot([](const UnitRole& role) { return role.root; }));
    return;
  }
  roots_.resize(units.size());
  for (const UnitRole& role : roles)
    if (role.root)
      roots_[static_cast<size_t>(role.index)] =
          make_slot([&](const UnitRole& other) { return other.index == role.index; });
}

ValueSlot* GatherRoom::take(const UnitRole& role) {
  ValueSlot& slot =
      role.root ? roots_[keep_root_ ? static_cast<size_t>(role.index) : 0] : ring_[turn_ % ring_.size()];
  if (slot.taken) return nullptr;
  if (!role.root) ++turn_;
  slot.taken = true;
  return &slot;
}

GradientRoom::GradientRoom(const std::vector<ParamList>& units, const std::vector<UnitRole>& roles,
                           RankGroups groups, const UnitOptions& options, UnitArenas arenas)
    : own_(units.size()) {
  const auto size_of = [&](const UnitRole& role) {
    return FlatLayout(units[static_cast<size_t>(role.index)], Segment::trainable, groups.size, groups.count())
        .size();
  };
  const int64_t most = largest(
      roles, [](const UnitRole&) { return true; }, size_of);
  if (most == 0) return;
  if (groups.ranks > 1) received_ = arenas.exchange.alloc(DType::f32, {most});
  if (writes_sums_directly(options, groups)) return;
  if (options.wire != DType::f32) rounded_ = arenas.exchange.alloc(options.wire, {most});
  const auto make_slot = [&](int64_t size) {
    Slot slot;
    if (size > 0) slot.lanes = arenas.exchange.alloc(DType::f32, {options.lanes, size});
    return slot;
  };
  const auto one_stage = [](const UnitRole& role) { return role.stages == 1; };
  for (int i = 0; i < 2; ++i) ring_.push_back(make_slot(largest(roles, one_stage, size_of)));
  for (const UnitRole& role : roles)
    if (!one_stage(role)) own_[static_cast<size_t>(role.index)] = make_slot(size_of(role));
}

GradientRoom::Slot& GradientRoom::next(const UnitRole& role) {
  return role.stages > 1 ? own_[static_cast<size_t>(role.index)] : ring_[turn_++ % ring_.size()];
}

}  // namespace flatshard
