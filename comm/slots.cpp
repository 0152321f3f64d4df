#include "comm/slots.h"

#include <algorithm>
#include <cassert>

namespace flatshard {
namespace {

// The largest size(role) of the units for which counts(role) holds; 0 if there are none.
template <class Counts, class Size>
int64_t largest(const std::vector<UnitRole>& roles, Counts&& counts, Size&& size) {
  int64_t most = 0;
  for (const UnitRole& role : roles)
    if (counts(role)) most = std::max(most, size(role));
  return most;
}

// The sizes of the units' layouts.
struct LayoutSizes {
  const std::vector<ParamList>& units;
  RankGroups groups;
  DType compute;

  auto trainable() const {  // sizes in elements
    return [this](const UnitRole& role) {
      return FlatLayout::trainable(params_of(role), groups.size, groups.count()).size();
    };
  }
  auto frozen() const {  // sizes in bytes
    return [this](const UnitRole& role) {
      return FlatLayout::frozen(params_of(role), compute, groups.size, groups.count()).size();
    };
  }
  // The size of what a rank gathers; nothing is frozen in a unit in parts.
  auto trainable_part() const {
    return [whole = trainable()](const UnitRole& role) { return whole(role) / role.parts; };
  }
  const ParamList& params_of(const UnitRole& role) const { return units[static_cast<size_t>(role.index)]; }
};

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

const OptimizerKind& unit_optimizer(const FlatLayout& trainable, const UnitOptions& options) {
  constexpr int64_t kFewest = 4096;
  const int64_t block = options.optimizer->largest_block();
  if (block == 1) return *options.optimizer;
  int64_t elements = 0;
  bool aligned = true;
  for (const FlatLayout::Extent& extent : trainable.extents()) {
    elements += extent.size;
    aligned = aligned && extent.begin % block == 0;
  }
  return aligned && elements >= kFewest ? *options.optimizer : *options.optimizer->without_blocks;
}

GatherSlots::GatherSlots(const std::vector<ParamList>& units, const std::vector<UnitRole>& roles,
                         RankGroups groups, const UnitOptions& options, UnitArenas arenas)
    : keep_root_(options.keep_root), rings_(ring_count(roles)), own_(units.size()) {
  if (!shards_values(options, groups)) return;
  const LayoutSizes sizes{units, groups, options.compute};
  const auto gathers = [&](const UnitRole& role) {
    return !role.replicated && shards_values(options, groups_of(role, groups));
  };
  const auto make_slot = [&](auto&& shares) {
    const auto buffer = [&](DType dtype, auto&& size_of_unit) {
      const int64_t size = largest(
          roles, [&](const UnitRole& role) { return gathers(role) && shares(role); }, size_of_unit);
      return size == 0 ? Tensor{} : arenas.gathered.alloc(dtype, {size});
    };
    ValueSlot slot;
    slot.trainable = buffer(options.compute, sizes.trainable_part());
    slot.frozen = buffer(DType::u8, sizes.frozen());
    return slot;
  };
  for (size_t ring = 0; ring < rings_.size(); ++ring)
    for (int i = 0; i < options.gather_slots; ++i)
      rings_[ring].slots.push_back(make_slot([&](const UnitRole& role) {
        return kind_of(role) == Kind::ring && static_cast<size_t>(role.ring) == ring;
      }));
  for (const UnitRole& role : roles)
    if (gathers(role) && kind_of(role) == Kind::own)
      own_[static_cast<size_t>(role.index)] =
          make_slot([&](const UnitRole& other) { return other.index == role.index; });
  shared_ = make_slot([&](const UnitRole& role) { return kind_of(role) == Kind::shared; });
}

GatherSlots::Kind GatherSlots::kind_of(const UnitRole& role) const {
  if (role.layers > 1) return Kind::own;
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

void GatherSlots::rewind() {
  for (Ring& ring : rings_) {
    assert(std::none_of(ring.slots.begin(), ring.slots.end(), [](const ValueSlot& s) { return s.taken; }));
    ring.turn = 0;
  }
}

GradientSlots::GradientSlots(const std::vector<ParamList>& units, const std::vector<UnitRole>& roles,
                             RankGroups groups, const UnitOptions& options, UnitArenas arenas)
    : lane_steps_(options.lane_steps), rings_(ring_count(roles)), own_(units.size()) {
  const LayoutSizes sizes{units, groups, options.compute};
  const auto size_of_unit = sizes.trainable();
  const int64_t most = largest(
      roles, [](const UnitRole&) { return true; }, size_of_unit);
  if (groups.ranks > 1) {
    // Initial values of frozen parameters are received too, even if nothing is trained.
    const int64_t first_bytes = options.sync_initial_values
                                    ? largest(
                                          roles, [](const UnitRole&) { return true; }, sizes.frozen())
                                    : 0;
    if (const int64_t longest = std::max(most, first_bytes / size_of(DType::f32)); longest > 0)
      received_ = arenas.exchange.alloc(DType::f32, {longest});
  }
  if (most == 0) return;
  const bool direct = writes_sums_directly(options, groups);
  if (options.wire != DType::f32) rounded_ = arenas.exchange.alloc(options.wire, {most});
  const auto make_slot = [&](int64_t size) {
    Slot slot;
    // A unit in parts has as many times the lanes.
    if (size > 0) slot.lanes = arenas.exchange.alloc(DType::f32, {options.lanes * size});
    return slot;
  };
  for (size_t ring = 0; ring < rings_.size(); ++ring) {
    const auto takes_turns = [&](const UnitRole& role) {
      return !direct && !has_own(role) && static_cast<size_t>(role.ring) == ring;
    };
    for (int i = 0; i < 2; ++i)
      rings_[ring].slots.push_back(make_slot(largest(roles, takes_turns, size_of_unit)));
  }
  for (const UnitRole& role : roles)
    for (int i = 0; has_own(role) && (!direct || role.in_flight > 1) && i < role.in_flight; ++i)
      own_[static_cast<size_t>(role.index)].slots.push_back(make_slot(size_of_unit(role)));
}

GradientSlots::Slot& GradientSlots::next(const UnitRole& role) {
  Ring& ring = has_own(role) ? own_[static_cast<size_t>(role.index)] : rings_[static_cast<size_t>(role.ring)];
  return ring.slots[ring.turn++ % ring.slots.size()];
}

}  // namespace flatshard
