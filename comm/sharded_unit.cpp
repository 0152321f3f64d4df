#include "comm/sharded_unit.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/init.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

// Sets the views of the layout's parameters in a flat buffer. Views of other parameters stay unchanged.
void point_at(std::vector<Tensor>& views, const ParamList& params, const FlatLayout& layout,
              const Tensor& flat) {
  for (const auto& [param, first, tensor] : layout.values(flat))
    views[static_cast<size_t>(param.index)] = tensor.view(params[param].shape);
}

}  // namespace

ShardedUnit::ShardedUnit(const ParamList& params, const UnitRole& role, UnitResources& shared)
    : params_(&params),
      name_(intern(role.name)),
      role_(role),
      comms_(shared.comms),
      options_(shared.options),
      gather_slots_(shared.gather_slots),
      gradient_slots_(shared.gradient_slots),
      shards_(shared.shards),
      pages_(shared.pages),
      trainable_(FlatLayout::trainable(params, comms_.gather.size(), comms_.replicas.size())),
      frozen_(FlatLayout::frozen(params, options_.compute, comms_.gather.size(), comms_.replicas.size())),
      group_(role.parts > 1 ? comms_.gather.of_place() : comms_.gather),
      trainable_part_(trainable_.part(role.parts > 1 ? comms_.gather.inside().rank() : 0, role.parts)),
      optimizer_(unit_optimizer(trainable_, options_)),
      sharded_values_(shards_values(options_, groups_of(role, comms_.groups())) && !role.replicated),
      values_(params.specs().size()),
      no_gradients_(params.specs().size()) {
  allocate_values(shared.arenas);
  if (trainable_.empty()) return;
  const Shape shard{trainable_.shard_size()};
  // In f32 the masters are this rank's shard of the parameters.
  master_ = options_.compute == DType::f32 ? value_shard_ : shared.arenas.optimizer.alloc(DType::f32, shard);
  allocate_state(shared.arenas);
  sums_.emplace(params, trainable_part_, role, shared);
}

void ShardedUnit::allocate_values(UnitArenas arenas) {
  const auto allocate = [&](const FlatLayout& layout, DType dtype, Tensor& full, Tensor& shard) {
    if (layout.empty()) return;
    if (sharded_values_) {
      shard = arenas.parameters.alloc(dtype, {layout.shard_size()});
      return;
    }
    full = arenas.parameters.alloc(dtype, {layout.size()});
    shard = own_shard(full);
    point_at(values_, params(), layout, full);
  };
  allocate(trainable_part_, options_.compute, values_flat_, value_shard_);
  allocate(frozen_, DType::u8, frozen_flat_, frozen_shard_);
}

void ShardedUnit::allocate_state(UnitArenas arenas) {
  const int64_t n = trainable_.shard_size();
  Tensor* tensor = optimizer_state_.data();
  for (const StateSpec& state : optimizer_.states())
    *tensor++ = (state.pages && pages_.holds(n) ? arenas.paged : arenas.optimizer)
                    .alloc(state.dtype, {state.size(n)});
}

void ShardedUnit::initialize(Stream& compute, Stream& gather, const InitialValues& values) {
  make_initial_values(compute, trainable_, master_, values);
  make_initial_values(compute, frozen_, frozen_shard_, values);
  if (has_gradients()) clear_state(compute);
  round_masters(compute);
  publish_all(compute, gather);
}

// Initializes the optimizer's state and clears the padding of sums.
void ShardedUnit::clear_state(Stream& compute) {
  const Tensor* tensor = optimizer_state_.data();
  for (const StateSpec& state : optimizer_.states()) {
    const Tensor& t = *tensor++;
    fill_bytes(t.device.is_cuda() ? compute : compute.host_side(), t, state.initial);
  }
  pages_.record_home(compute);
  sums_->clear_padding(compute);
}

void ShardedUnit::clear_padding(Stream& compute) {
  const auto clear = [&](const FlatLayout& layout, const Tensor& shard) {
    int64_t at = 0;
    for (const FlatLayout::Piece& piece : layout.pieces(shard_index())) {
      zero(shards_.worker(compute), shard.slice(at, piece.shard_offset));
      at = piece.shard_offset + piece.size;
    }
    zero(shards_.worker(compute), shard.slice(at, shard.size()));
  };
  if (has_gradients()) {
    clear(trainable_, master_);
    clear_state(compute);
  }
  if (!frozen_.empty()) clear(frozen_, frozen_shard_);
}

void ShardedUnit::round_masters(Stream& compute) {
  if (!shard().copy.empty()) cast(shards_.worker(compute), {.y = shard().copy, .x = master_});
}

void ShardedUnit::publish_all(Stream& compute, Stream& gather) {
  publish(compute, gather);
  if (sharded_values_ || frozen_.empty() || group_size() == 1) return;
  gather.wait(updated_);  // every rank has initialized its frozen shard, which never changes again
  group_.all_gather(gather, frozen_flat_, frozen_shard_, name_);
  gather.record(gathered_);
}

void ShardedUnit::prefetch(Stream& gather) {
  if (!sharded_values_ || state_ != State::sharded) return;
  value_slot_ = gather_slots_.take(role_);
  if (!value_slot_) return;  // too early: a unit that is still needed uses the slot
  Stream& fetcher = shards_.fetcher(gather);
  fetcher.wait(value_slot_->free);  // compute may still be reading the last unit's parameters
  fetcher.wait(updated_);           // the optimizer has written this rank's shard
  std::vector<GatherPart> parts;
  const auto add = [&](const FlatLayout& layout, const Tensor& buffer, const Tensor& shard) {
    if (layout.empty()) return;
    const Tensor full = buffer.slice(0, layout.size());
    parts.push_back({full, shards_.fetch(gather, own_shard(full), shard)});
    point_at(values_, params(), layout, full);
  };
  add(trainable_part_, value_slot_->trainable, value_shard_);
  add(frozen_, value_slot_->frozen, frozen_shard_);
  group_.all_gather(gather, parts, name_);
  gather.record(gathered_);
  state_ = State::gathering;
}

ParamView ShardedUnit::acquire(Stream& compute) {
  check(!sharded_values_ || state_ != State::sharded, "unit ", name_, " is acquired before it is prefetched");
  compute.wait(gathered_);  // the values of all ranks have arrived
  if (sharded_values_) state_ = State::gathered;
  return ParamView(values_);
}

void ShardedUnit::release(Stream& compute) {
  if (stays()) return;
  if (options_.poison) {
    fill_with_nan(compute, value_slot_->trainable);
    fill_with_nan(compute, value_slot_->frozen);
  }
  release_slot(compute);
}

void ShardedUnit::ungather(Stream& compute) {
  if (value_slot_) release_slot(compute);
}

// Releases the slot; no layer reads it any more.
void ShardedUnit::release_slot(Stream& compute) {
  compute.record(value_slot_->free);
  value_slot_->taken = false;
  value_slot_ = nullptr;
  state_ = State::sharded;
}

std::vector<Gradient>& ShardedUnit::grads(Stream& compute, int lane, int64_t micro) {
  if (!has_gradients()) return no_gradients_;
  if (!sums_->direct() && !sums_->slot(micro)) {
    sums_->slot(micro) = &sums_->next_slot();
    compute.wait(sums_->slot(micro)->free);  // the last unit's exchange may still be reading it
  }
  gradients_ = &sums_->lane(compute, lane, micro);
  return *gradients_;
}

void ShardedUnit::reduce(Stream& compute, Stream& reduce, int64_t micro) {
  if (!has_gradients() || !sums_->completes_lanes(micro)) return;
  sums_->finish_lanes(compute, micro);
  if (!sums_->direct()) {
    compute.record(ready_);
    reduce.wait(ready_);  // the backward pass has written all gradients
    sums_->add_up_lanes(reduce, micro);
    reduce.record(sums_->slot(micro)->free);  // the next unit may write
    sums_->slot(micro) = nullptr;
  }
  sums_->carry(shards_.worker(shards_.storer(sums_->direct() ? compute : reduce)), micro);
  if (micro + 1 < options_.micro_steps) return;
  if (sums_->direct()) {
    compute.record(ready_);
    reduce.wait(ready_);  // the sums over this rank's lanes are complete
  }
  sums_->finish(reduce);
  shards_.storer(reduce).record(reduced_);
}

void ShardedUnit::plan_last_exchange(Stream& reduce) {
  if (has_gradients()) sums_->plan_last_exchange(reduce);
}

void ShardedUnit::wait_reduced(Stream& compute) {
  compute.wait(reduced_);  // the optimizer reads the sums
}

void ShardedUnit::publish(Stream& compute, Stream& gather) {
  if (group_size() == 1 && !sharded_values_) return;
  compute.record(updated_);
  if (sharded_values_) {
    if (state_ != State::sharded) release_slot(compute);  // a root unit kept it; its content is stale
    return;
  }
  if (!has_gradients()) return;
  gather.wait(updated_);  // the optimizer has written this rank's shard
  group_.all_gather(gather, values_flat_, value_shard_, name_);
  gather.record(gathered_);
}

void ShardedUnit::add_to_frozen(Stream& compute, ParamId param, const Mirror& change) {
  if (sharded_values_ && state_ != State::sharded) release_slot(compute);
  Stream& worker = sharded_values_ ? shards_.worker(compute) : compute;
  for (const auto& [id, first, tensor] : sharded_values_
                                             ? frozen_.values_in_shard(shard_index(), frozen_shard_)
                                             : frozen_.values(frozen_flat_)) {
    if (id.index != param.index) continue;
    const Tensor& whole = tensor.device.is_cuda() ? change.device : change.host;
    const Tensor part = whole.slice(first, first + tensor.size());
    add(worker, {.y = tensor, .a = tensor, .b = part.view(tensor.shape)});
  }
  if (sharded_values_) compute.record(updated_);
}

Tensor ShardedUnit::gather_masters(Stream& compute) {
  if (comms_.gather.size() == 1) return master_;
  if (options_.compute == DType::f32 && !sharded_values_ && role_.parts == 1) return values_flat_;
  const Tensor full = gradient_slots_.received().slice(0, trainable_.size());
  comms_.compute.all_gather(compute, full, shards_.pull(compute, shard_of(full), master_), name_);
  return full;
}

OptimizerShard ShardedUnit::shard() const {
  return {.p = master_,
          .copy = options_.compute == DType::f32 ? Tensor{} : value_shard_,
          .g = has_gradients() ? sums_->shard() : Tensor{},
          .state = optimizer_state_,
          .decay_end = trainable_.decayed_in_shard(shard_index())};
}

// Each rank initializes its own shard. With sync_initial_values rank 0 initializes all parameters and sends
// them to its peers in the other groups, and each peer sends them to its group.
void ShardedUnit::make_initial_values(Stream& compute, const FlatLayout& layout, const Tensor& shard,
                                      const InitialValues& values) {
  if (layout.empty()) return;
  const auto fill = [&](Stream& stream, const Tensor& t, const std::vector<FlatLayout::Values>& all) {
    zero(stream, t);  // clears the padding
    for (const auto& [param, first, tensor] : all) values(stream, params()[param], first, tensor);
  };
  if (!options_.sync_initial_values || comms_.groups().ranks == 1)
    return fill(shards_.worker(compute), shard, layout.values_in_shard(shard_index(), shard));
  Tensor full = gradient_slots_.received();
  full.dtype = shard.dtype;
  full.shape = {layout.size()};
  if (shard_index() == 0 && comms_.replicas.rank() == 0) fill(compute, full, layout.values(full));
  comms_.replicas.broadcast(compute, full, name_);
  comms_.compute.broadcast(compute, full, name_);
  copy(compute, shard, shard_of(full));
}

}  // namespace flatshard
