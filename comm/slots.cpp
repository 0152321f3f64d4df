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

size_t ring_count(const std::vector<UnitRole>& roles) {
  int most = 0;
  for (const UnitRole& role : roles) most = std::max(most, role.ring);
  return static_cast<size_t>(most) + 1;
}

}  // namespace

bool writes_sums_directly(const UnitOptions& options, RankGroups groups) {
  return options.lanes == 1 && options.wire == DType::f32 && !options.offload &&
         sums_are_unsharded(options, groups);
}

GatherSlots::GatherSlots(const std::vector<ParamList>& units, const std::vector<UnitRole>& roles,
                         RankGroups groups, const UnitOptions& options, UnitArenas arenas)
    : keep_root_(options.keep_root), rings_(ring_count(roles)), own_(units.size()) {
  if (!shards_values(options, groups)) return;
  const auto make_slot = [&](auto&& counts) {
    const auto room = [&](Segment segment) {
      const int64_t size = largest(roles, counts, [&](const UnitRole& role) {
        return FlatLayout(units[static_cast<size_t>(role.index)], segment, groups.size, groups.count())
            .size();
      });
      return size == 0 ? Tensor{} : arenas.gathered.alloc(options.compute, {size});
    };
    ValueSlot slot;
    slot.trainable = room(Segment::trainable);
    slot.frozen = room(Segment::frozen);
    return slot;
  };
  for (size_t ring = 0; ring < rings_.size(); ++ring)
    for (int i = 0; i < options.gather_slots; ++i)
      rings_[ring].slots.push_back(make_slot([&](const UnitRole& role) {
        return !role.replicated && kind_of(role) == Kind::ring && static_cast<size_t>(role.ring) == ring;
      }));
  for (const UnitRole& role : roles)
    if (!role.replicated && kind_of(role) == Kind::own)
      own_[static_cast<size_t>(role.index)] =
          make_slot([&](const UnitRole& other) { return other.index == role.index; });
  shared_ =
      make_slot([&](const UnitRole& role) { return !role.replicated && kind_of(role) == Kind::shared; });
}

GatherSlots::Kind GatherSlots::kind_of(const UnitRole& role) const {
  if (role.stages > 1) return Kind::own;
  if (!role.root) return Kind::ring;
  return keep_root_ ? Kind::own : Kind::shared;
}

ValueSlot* GatherSlots::take(const UnitRole& role) {
  const Kind kind = kind_of(role);
  Ring& ring = rings_[static_cast<size_t>(role.ring)];
  ValueSlot& slot = kind == Kind::ring  ? ring.slots[ring.turn % ring.slots.size()]
                    : kind == Kind::own ? own_[static_cast<size_t>(role.index)]
                                        : shared_;
  if (slot.taken) return nullptr;
  if (kind == Kind::ring) ++ring.turn;
  slot.taken = true;
  return &slot;
}

GradientSlots::GradientSlots(const std::vector<ParamList>& units, const std::vector<UnitRole>& roles,
                             RankGroups groups, const UnitOptions& options, UnitArenas arenas)
    : rings_(ring_count(roles)), own_(units.size()) {
  const auto size_in = [&](Segment segment) {
    return [&, segment](const UnitRole& role) {
      return FlatLayout(units[static_cast<size_t>(role.index)], segment, groups.size, groups.count()).size();
    };
  };
  const auto size_of = size_in(Segment::trainable);
  const int64_t most = largest(
      roles, [](const UnitRole&) { return true; }, size_of);
  if (most == 0) return;
  if (groups.ranks > 1) {
    const int64_t first = options.sync_initial_values
                              ? largest(
                                    roles, [](const UnitRole&) { return true; }, size_in(Segment::frozen))
                              : 0;
    received_ = arenas.exchange.alloc(DType::f32, {std::max(most, first)});
  }
  if (writes_sums_directly(options, groups)) return;
  if (options.wire != DType::f32) rounded_ = arenas.exchange.alloc(options.wire, {most});
  const auto make_slot = [&](int64_t size) {
    Slot slot;
    if (size > 0) slot.lanes = arenas.exchange.alloc(DType::f32, {options.lanes, size});
    return slot;
  };
  for (size_t ring = 0; ring < rings_.size(); ++ring) {
    const auto takes_turns = [&](const UnitRole& role) {
      return role.stages == 1 && static_cast<size_t>(role.ring) == ring;
    };
    for (int i = 0; i < 2; ++i) rings_[ring].slots.push_back(make_slot(largest(roles, takes_turns, size_of)));
  }
  for (const UnitRole& role : roles)
    if (role.stages > 1) own_[static_cast<size_t>(role.index)] = make_slot(size_of(role));
}

GradientSlots::Slot& GradientSlots::next(const UnitRole& role) {
  if (role.stages > 1) return own_[static_cast<size_t>(role.index)];
  Ring& ring = rings_[static_cast<size_t>(role.ring)];
  return ring.slots[ring.turn++ % ring.slots.size()];
}

}  // namespace flatshard
