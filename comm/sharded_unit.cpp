#include "comm/sharded_unit.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/adamw8bit.h"
#include "kernels/dynamic_table.h"
#include "kernels/elementwise.h"
#include "kernels/init.h"
#include "kernels/ordered_sum.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

// How many sums of lanes exist at once: the one just made, and one for each digit 1 of the number of those
// before it.
int sums_at_once(const UnitOptions& options) {
  if (options.reduction != Reduction::exact) return 1;
  const uint64_t last = static_cast<uint64_t>(options.lane_rounds() - 1);
  return std::max(std::popcount(last), static_cast<int>(std::bit_width(last)) - 1) + 1;
}

// Views of the parameters in a flat buffer; those of the other layout are left as they are.
void point_at(std::vector<Tensor>& views, const ParamList& params, const FlatLayout& layout,
              const Tensor& flat) {
  for (const auto& [param, first, tensor] : layout.values(flat))
    views[static_cast<size_t>(param.index)] = tensor.view(params[param].shape);
}

void fill_with_nan(Stream& stream, const Tensor& t) {
  if (t.empty() || t.device.is_cuda()) return;
  stream.run("poison", [t] { std::memset(t.data, 0xff, static_cast<size_t>(t.bytes())); });
}

}  // namespace

UnitResources::UnitResources(const std::vector<ParamList>& units, const std::vector<UnitRole>& roles,
                             Communicators communicators, const UnitOptions& unit_options,
                             UnitArenas unit_arenas, std::optional<CopyStreams> copies)
    : comms(communicators),
      options(unit_options),
      arenas(unit_arenas),
      gather_slots(units, roles, comms.groups(), options, arenas),
      gradient_slots(units, roles, comms.groups(), options, arenas),
      shards(units, comms.groups(), options, arenas, options.offload ? copies : std::nullopt),
      pages(units, comms.groups(), options, arenas, copies) {
  check(options.wire == DType::f32 || options.lanes == 1,
        "gradients of several lanes are sent as one fp32 sum, ", "not as ", options.wire);
  check(options.lane_steps == 1 || options.lanes == 1, "a lane of ", options.lane_steps,
        " micro-steps needs a rank of its own in each, but there are ", options.lanes, " lanes");
}

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
      sharded_values_(shards_values(options_, comms_.groups()) && !role.replicated),
      unsharded_sums_(sums_are_unsharded(options_, comms_.groups())),
      direct_(writes_sums_directly(options_, comms_.groups()) && role.in_flight == 1),
      values_(params.specs().size()),
      no_gradients_(params.specs().size()),
      open_(static_cast<size_t>(role.in_flight),
            Open{.lanes = std::vector<Lane>(static_cast<size_t>(options_.lanes),
                                            Lane{.gradients = no_gradients_})}) {
  allocate_values(shared.arenas);
  if (trainable_.empty()) return;
  const Shape shard{trainable_.shard_size()};
  // In f32 the masters are this rank's part of the values.
  master_ = options_.compute == DType::f32 ? value_shard_ : shared.arenas.optimizer.alloc(DType::f32, shard);
  allocate_moments(shared.arenas);
  const Shape sum{unsharded_sums_ ? trainable_.size() : trainable_.shard_size()};
  for (int i = 0; i < sums_at_once(options_); ++i)
    sums_.push_back(shared.arenas.gradients.alloc(DType::f32, sum));
  reduced_sum_ =
      unsharded_sums_ && group_size() > 1 ? shared.arenas.gradients.alloc(DType::f32, shard) : sums_.front();
}

void ShardedUnit::allocate_values(UnitArenas arenas) {
  const auto allocate = [&](const FlatLayout& layout, DType dtype, Tensor& whole, Tensor& shard) {
    if (layout.empty()) return;
    if (sharded_values_) {
      shard = arenas.parameters.alloc(dtype, {layout.shard_size()});
      return;
    }
    whole = arenas.parameters.alloc(dtype, {layout.size()});
    shard = own_part(whole);
    point_at(values_, params(), layout, whole);
  };
  allocate(trainable_, options_.compute, values_flat_, value_shard_);
  allocate(frozen_, DType::u8, frozen_flat_, frozen_shard_);
}

void ShardedUnit::allocate_moments(UnitArenas arenas) {
  const DType dtype = moment_dtype(trainable_, options_);
  const int64_t n = trainable_.shard_size();
  Arena& arena = pages_.holds(n) ? arenas.paged : arenas.optimizer;
  for (Tensor* moment : {&m_, &v_}) *moment = arena.alloc(dtype, {n});
  if (dtype == DType::f32) return;
  for (Tensor* absmax : {&m_absmax_, &v_absmax_})
    *absmax = arenas.optimizer.alloc(DType::f32, {n / kMomentBlock});
}

void ShardedUnit::initialize(Stream& compute, Stream& gather, const InitialValues& values) {
  make_initial_values(compute, trainable_, master_, values);
  make_initial_values(compute, frozen_, frozen_shard_, values);
  if (has_gradients()) clear_state(compute);
  round_masters(compute);
  publish_all(compute, gather);
}

// The moments, and the padding of sums that lanes are written to, which stays as it is.
void ShardedUnit::clear_state(Stream& compute) {
  const auto fill = [&](const Tensor& t, unsigned char value) {
    fill_bytes(t.device.is_cuda() ? compute : compute.host_side(), t, value);
  };
  fill(m_, m_.dtype == DType::u8 ? kSignedZero : 0);
  for (const Tensor& t : {v_, m_absmax_, v_absmax_}) fill(t, 0);
  pages_.record_home(compute);
  if (direct_)
    for (const Tensor& sum : sums_) zero_padding(compute, sum);
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
  gather.wait(updated_);  // every rank has made its part of the frozen values; they never change again
  comms_.gather.all_gather(gather, frozen_flat_, frozen_shard_, name_);
  gather.record(gathered_);
}

void ShardedUnit::prefetch(Stream& gather) {
  if (!sharded_values_ || state_ != State::sharded) return;
  value_slot_ = gather_slots_.take(role_);
  if (!value_slot_) return;  // too early: a unit that is still needed has the slot
  Stream& fetcher = shards_.fetcher(gather);
  fetcher.wait(value_slot_->free);  // compute may still be reading the slot's last tenant
  fetcher.wait(updated_);           // the optimizer has written this rank's shard
  std::vector<GatherPart> parts;
  const auto add = [&](const FlatLayout& layout, const Tensor& buffer, const Tensor& shard) {
    if (layout.empty()) return;
    const Tensor whole = buffer.slice(0, layout.size());
    parts.push_back({whole, shards_.fetch(gather, own_part(whole), shard)});
    point_at(values_, params(), layout, whole);
  };
  add(trainable_, value_slot_->trainable, value_shard_);
  add(frozen_, value_slot_->frozen, frozen_shard_);
  comms_.gather.all_gather(gather, parts, name_);
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

// Releases the slot; no layer reads it any more.
void ShardedUnit::release_slot(Stream& compute) {
  compute.record(value_slot_->free);
  value_slot_->taken = false;
  value_slot_ = nullptr;
  state_ = State::sharded;
}

// Where the gradients of a lane are written.
Tensor ShardedUnit::flat_gradients(const Open& of, int lane) const {
  if (direct_) return next_sum();
  const Tensor& lanes = of.slot->lanes;
  return lanes.slice(lane, lane + 1).view({lanes.shape[1]}).slice(0, trainable_.size());
}

// Nothing else in the buffer of a lane has to be cleared: the first op that computes a gradient writes it.
void ShardedUnit::zero_padding(Stream& compute, const Tensor& flat) const {
  int64_t at = 0;
  for (const FlatLayout::Extent& extent : trainable_.extents()) {
    if (at < extent.begin) zero(compute, flat.slice(at, extent.begin));
    at = extent.begin + extent.size;
  }
  if (at < flat.size()) zero(compute, flat.slice(at, flat.size()));
}

void ShardedUnit::begin(Stream& compute, Lane& lane, const Tensor& flat) const {
  const bool adds = direct_ && adds_in_turn();  // to the micro-steps before
  for (const auto& [param, first, tensor] : trainable_.values(flat)) {
    lane.gradients[static_cast<size_t>(param.index)] = {tensor.view(params()[param].shape), adds};
    if (options_.poison && !adds) fill_with_nan(compute, tensor);
  }
  if (!direct_) zero_padding(compute, flat);
  lane.begun = true;
}

void ShardedUnit::finish(Stream& compute, Lane& lane) {
  for (const Gradient& gradient : lane.gradients)
    if (!gradient.tensor.empty() && !gradient.written) zero(compute, gradient.tensor);
  lane.begun = false;
}

std::vector<Gradient>& ShardedUnit::grads(Stream& compute, int lane, int64_t micro) {
  if (!has_gradients()) return no_gradients_;
  Open& now = open(micro);
  if (!direct_ && !now.slot) {
    now.slot = &gradient_slots_.next(role_);
    compute.wait(now.slot->free);  // the exchange of the slot's last tenant still reads it
  }
  Lane& its = now.lanes[static_cast<size_t>(lane)];
  if (!its.begun) begin(compute, its, flat_gradients(now, lane));
  gradients_ = &its.gradients;
  return *gradients_;
}

void ShardedUnit::reduce(Stream& compute, Stream& reduce, int64_t micro) {
  if (!has_gradients()) return;
  Open& now = open(micro);
  if (++now.layers_done < role_.backward_layers) return;
  now.layers_done = 0;
  if ((micro + 1) % options_.lane_steps != 0) return;  // the next micro-step adds to the same lane
  for (Lane& lane : now.lanes) finish(compute, lane);
  if (!direct_) {
    compute.record(ready_);
    reduce.wait(ready_);  // the backward pass has written all gradients
    add_up_lanes(reduce, now);
    reduce.record(now.slot->free);  // the next tenant may write
    now.slot = nullptr;
  }
  sum_count_ = exact() ? sum_count_ + 1 : 1;
  carry(shards_.worker(shards_.storer(direct_ ? compute : reduce)), micro / options_.lane_steps);
  if (micro + 1 < options_.micro_steps) return;
  if (direct_) {
    compute.record(ready_);
    reduce.wait(ready_);  // the sums over this rank's lanes are complete
  }
  finish_sums(reduce);
  shards_.storer(reduce).record(reduced_);
}

// The gradients of the lanes of a micro-step, or of a lane of several, become the next sum.
void ShardedUnit::add_up_lanes(Stream& reduce, const Open& of) {
  // The tree over the lanes of this rank; it ends in the first lane.
  for (int width = 1; width < options_.lanes; width *= 2)
    for (int lane = 0; lane + width < options_.lanes; lane += 2 * width)
      add(reduce, {.y = flat_gradients(of, lane),
                   .a = flat_gradients(of, lane),
                   .b = flat_gradients(of, lane + width)});
  Tensor mine = flat_gradients(of, 0);
  if (options_.wire != DType::f32) {
    const Tensor rounded = gradient_slots_.rounded().slice(0, mine.size());
    cast(reduce, {.y = rounded, .x = mine});
    mine = rounded;
  }
  const ShardPlacement::Build to = shards_.begin(reduce, next_sum(), adds_in_turn());
  if (unsharded_sums_)
    ordered_sum(reduce, {.y = to.values, .lanes = mine.view({1, mine.size()}), .accumulate = to.accumulate});
  else
    sum_over_group(reduce, to.values, mine, to.accumulate);
  shards_.store(reduce, to);
}

// sum = (or +=) this rank's part of `mine` of all ranks of the group.
void ShardedUnit::sum_over_group(Stream& reduce, const Tensor& sum, const Tensor& mine, bool accumulate) {
  Tensor received = gradient_slots_.received().slice(0, mine.size());
  if (options_.reduction == Reduction::native) {
    const Tensor part = received.slice(0, sum.size());
    comms_.reduce.reduce_scatter(reduce, part, mine, name_);
    ordered_sum(reduce, {.y = sum, .lanes = part.view({1, part.size()}), .accumulate = accumulate});
    return;
  }
  received.dtype = mine.dtype;
  comms_.reduce.all_to_all(reduce, received, mine, name_);
  ordered_sum(reduce,
              {.y = sum, .lanes = received.view({group_size(), sum.size()}), .accumulate = accumulate});
}

// Adds up as a binary counter does: where two sums of equally many lanes stand side by side they become one;
// after the last lane all do.
void ShardedUnit::carry(Stream& stream, int64_t round) {
  const auto join = [&] {
    const Tensor &left = sums_[static_cast<size_t>(sum_count_ - 2)],
                 &right = sums_[static_cast<size_t>(sum_count_ - 1)];
    add(stream, {.y = left, .a = left, .b = right});
    --sum_count_;
  };
  if (exact())
    for (int64_t digits = round; digits & 1; digits >>= 1) join();
  if (round + 1 < options_.lane_rounds()) return;
  while (sum_count_ > 1) join();
  sum_count_ = 0;
}

// What is left after the last micro-step: whole sums to their owners, then one sum over the replicas.
void ShardedUnit::finish_sums(Stream& reduce) {
  if (unsharded_sums_ && group_size() > 1) sum_over_group(reduce, reduced_sum_, sums_.front(), false);
  if (comms_.replicas.size() == 1) return;
  const ShardPlacement::Build total = shards_.reopen(reduce, reduced_sum_);
  sum_over_replicas(reduce, total.values);
  shards_.store(reduce, total);
}

void ShardedUnit::sum_over_replicas(Stream& reduce, const Tensor& sum) {
  const int replicas = comms_.replicas.size();
  const Tensor received = gradient_slots_.received().slice(0, sum.size());
  const Tensor part = part_of(sum, comms_.replicas.rank(), replicas);
  comms_.replicas.all_to_all(reduce, received, sum, name_);
  ordered_sum(reduce, {.y = part, .lanes = received.view({replicas, part.size()})});
  comms_.replicas.all_gather(reduce, sum, part, name_);
}

void ShardedUnit::plan_last_exchange(Stream& reduce) {
  if (!has_gradients()) return;
  if (!direct_) add_up_lanes(reduce, Open{.slot = &gradient_slots_.next(role_)});
  finish_sums(reduce);
}

void ShardedUnit::wait_reduced(Stream& compute) {
  compute.wait(reduced_);  // the optimizer reads the sums
}

void ShardedUnit::publish(Stream& compute, Stream& gather) {
  if (group_size() == 1 && !sharded_values_) return;
  compute.record(updated_);
  if (sharded_values_) {
    if (state_ != State::sharded) release_slot(compute);  // a root unit kept it; now it is out of date
    return;
  }
  if (!has_gradients()) return;
  gather.wait(updated_);  // the optimizer has written this rank's part
  comms_.gather.all_gather(gather, values_flat_, value_shard_, name_);
  gather.record(gathered_);
}

Tensor ShardedUnit::gather_masters(Stream& compute) {
  if (group_size() == 1) return master_;
  if (options_.compute == DType::f32 && !sharded_values_) return values_flat_;
  const Tensor whole = gradient_slots_.received().slice(0, trainable_.size());
  comms_.compute.all_gather(compute, whole, shards_.pull(compute, own_part(whole), master_), name_);
  return whole;
}

ShardedUnit::Shard ShardedUnit::shard() const {
  return {.p = master_,
          .m = m_,
          .v = v_,
          .copy = options_.compute == DType::f32 ? Tensor{} : value_shard_,
          .g = reduced_sum_,
          .m_absmax = m_absmax_,
          .v_absmax = v_absmax_,
          .decay_end = trainable_.decayed_in_shard(shard_index())};
}

}  // namespace flatshard
