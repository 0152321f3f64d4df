#include "comm/state_pages.h"

#include <algorithm>

#include "runtime/memory.h"

namespace flatshard {
namespace {

// The bytes of a slot as a tensor with the dtype and shape of `home`.
Tensor like(const Tensor& bytes, const Tensor& home) {
  Tensor t = bytes.slice(0, home.bytes());
  t.dtype = home.dtype;
  t.shape = home.shape;
  return t;
}

// Calls visit(i) for each tensor of the state that pages.
template <class Visit>
void each_page(const OptimizerKind& optimizer, Visit&& visit) {
  const std::span<const StateSpec> states = optimizer.states();
  for (size_t i = 0; i < states.size(); ++i)
    if (states[i].pages) visit(i);
}

}  // namespace

StatePages::StatePages(const std::vector<ParamList>& units, RankGroups groups, const UnitOptions& options,
                       UnitArenas arenas, std::optional<CopyStreams> copies)
    : from_(options.page_state_from), copies_(copies) {
  if (!from_) return;
  check(copies_.has_value(), "paged state needs copy streams");
  std::array<std::array<int64_t, kMostStates>, 2> most{};
  size_t turn = 0;
  for (const ParamList& params : units) {
    const FlatLayout layout = FlatLayout::trainable(params, groups.size, groups.count());
    if (layout.empty() || !holds(layout.shard_size())) continue;
    const OptimizerKind& optimizer = unit_optimizer(layout, options);
    each_page(optimizer, [&](size_t i) {
      const StateSpec& state = optimizer.states()[i];
      most[turn][i] = std::max(most[turn][i], state.size(layout.shard_size()) * size_of(state.dtype));
    });
    turn = 1 - turn;
  }
  for (size_t slot = 0; slot < slots_.size(); ++slot)
    for (size_t i = 0; i < kMostStates; ++i)
      if (most[slot][i] > 0) slots_[slot].state[i] = arenas.optimizer.alloc(DType::u8, {most[slot][i]});
}

void StatePages::record_home(Stream& stream) {
  if (from_) stream.record(home_);
}

OptimizerState StatePages::fetch(Stream& stream, const UnitState& home) {
  if (!holds(home.elements)) return home.tensors;
  Slot& slot = slots_[turn_];
  OptimizerState on_device = home.tensors;
  Stream& in = copies_->to_device;
  in.wait(home_);      // the initial state is in host memory
  in.wait(slot.free);  // the slot's last tenant, and this unit's last update, are in host memory
  each_page(home.optimizer, [&](size_t i) {
    on_device[i] = like(slot.state[i], home.tensors[i]);
    copy(in, on_device[i], home.tensors[i]);
  });
  in.record(slot.arrived);
  stream.wait(slot.arrived);
  return on_device;
}

void StatePages::store(Stream& stream, const UnitState& home, const OptimizerState& on_device) {
  if (!holds(home.elements)) return;
  Slot& slot = slots_[turn_];
  stream.record(slot.updated);
  Stream& out = copies_->to_host;
  out.wait(slot.updated);
  each_page(home.optimizer, [&](size_t i) { copy(out, home.tensors[i], on_device[i]); });
  out.record(slot.free);
  turn_ = 1 - turn_;
}

void StatePages::finish(Stream& stream) {
  for (const Slot& slot : slots_) stream.wait(slot.free);
  turn_ = 0;
}

}  // namespace flatshard
