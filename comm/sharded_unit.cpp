#include "comm/sharded_unit.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/init.h"
#include "kernels/ordered_sum.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

// How many sums of micro-steps exist at once: the one just made, and one for each digit 1 of the number of
// those before it.
int sums_at_once(const UnitOptions& options) {
  if (options.reduction != Reduction::exact) return 1;
  const uint64_t last = static_cast<uint64_t>(options.micro_steps - 1);
  return std::max(std::popcount(last), static_cast<int>(std::bit_width(last)) - 1) + 1;
}

// Views of the parameters in a flat buffer; those of another segment are left as they are.
void point_at(std::vector<Tensor>& views, const ParamList& params, const FlatLayout& layout,
              const Tensor& flat) {
  for (const FlatLayout::Place& place : layout.places())
    views[static_cast<size_t>(place.param.index)] =
        flat.slice(place.begin, place.begin + place.size).view(params[place.param].shape);
}

void fill_with_nan(Stream& stream, const Tensor& t) {
  if (t.empty() || t.device.is_cuda()) return;
  stream.run("poison", [t] { std::memset(t.data, 0xff, static_cast<size_t>(t.bytes())); });
}

}  // namespace

int64_t lane_of(const UnitOptions& options, RankGroups groups, int rank, int64_t micro, int64_t lane) {
  const int64_t group = groups.group_of(rank), place = groups.place_of(rank);
  // Outermost what is summed last.
  const int64_t turn = sums_are_whole(options, groups)
                           ? (group * groups.size + place) * options.micro_steps + micro
                           : (group * options.micro_steps + micro) * groups.size + place;
  return turn * options.lanes + lane;
}

ShardedUnit::ShardedUnit(const ParamList& params, const UnitRole& role, Communicators comms,
                         const UnitOptions& options, UnitArenas arenas, GatherRoom& gather_room,
                         GradientRoom& gradient_room, CopyStreams copies)
    : params_(&params),
      name_(lasting(role.name)),
      role_(role),
      comms_(comms),
      options_(options),
      gather_room_(&gather_room),
      gradient_room_(&gradient_room),
      copies_(copies),
      trainable_(params, Segment::trainable, comms.gather.size(), comms.replicas.size()),
      frozen_(params, Segment::frozen, comms.gather.size(), comms.replicas.size()),
      sharded_values_(shards_values(options, comms.groups()) && !role.whole),
      whole_sums_(sums_are_whole(options, comms.groups())),
      direct_(writes_sums_directly(options, comms.groups())),
      values_(params.specs().size()),
      gradients_(params.specs().size()),
      lane_zeroed_(static_cast<size_t>(options.lanes)) {
  check(options.wire == DType::f32 || options.lanes == 1,
        "gradients of several lanes travel as one fp32 sum, ", "not as ", options.wire);
  allocate_values(arenas);
  if (trainable_.empty()) return;
  const Shape shard{trainable_.shard_size()};
  // In f32 the masters are this rank's part of the values.
  master_ = options.compute == DType::f32 ? value_shard_ : arenas.optimizer.alloc(DType::f32, shard);
  m_ = arenas.optimizer.alloc(DType::f32, shard);
  v_ = arenas.optimizer.alloc(DType::f32, shard);
  const Shape sum{whole_sums_ ? trainable_.size() : trainable_.shard_size()};
  for (int i = 0; i < sums_at_once(options); ++i) sums_.push_back(arenas.gradients.alloc(DType::f32, sum));
  reduced_sum_ = whole_sums_ && group_size() > 1 ? arenas.gradients.alloc(DType::f32, shard) : sums_.front();
}

void ShardedUnit::allocate_values(UnitArenas arenas) {
  const auto allocate = [&](const FlatLayout& layout, Tensor& whole, Tensor& shard) {
    if (layout.empty()) return;
    if (sharded_values_) {
      shard = arenas.parameters.alloc(options_.compute, {layout.shard_size()});
      return;
    }
    whole = arenas.parameters.alloc(options_.compute, {layout.size()});
    shard = part_of(whole, place(), group_size());
    point_at(values_, params(), layout, whole);
  };
  allocate(trainable_, values_flat_, value_shard_);
  allocate(frozen_, frozen_flat_, frozen_shard_);
}

FirstValues random_values(uint64_t seed) {
  return [seed](Stream& stream, const ParamSpec& spec, int64_t first, const Tensor& y) {
    init_param(stream, {.y = y, .init = spec.init, .random = RandomStream(seed, spec.name), .first = first});
  };
}

// Each rank makes what it owns; or rank 0 makes all of it, and sends it to its group's peers in the other
// groups, and these to their groups.
void ShardedUnit::make_first_values(Stream& compute, const FlatLayout& layout, const Tensor& shard,
                                    const FirstValues& values) {
  if (layout.empty()) return;
  const auto fill = [&](Stream& stream, const Tensor& t, const std::vector<FlatLayout::Piece>& pieces) {
    zero(stream, t);  // the padding
    for (const FlatLayout::Piece& piece : pieces)
      values(stream, params()[piece.param], piece.in_param,
             t.slice(piece.in_shard, piece.in_shard + piece.size));
  };
  if (!options_.sync_first_values || comms_.groups().ranks == 1)
    return fill(on_shards(compute), shard, layout.pieces(place()));
  Tensor whole = gradient_room_->received().slice(0, layout.size());
  whole.dtype = shard.dtype;
  if (place() == 0 && comms_.replicas.rank() == 0) {
    std::vector<FlatLayout::Piece> all;
    for (const FlatLayout::Place& p : layout.places()) all.push_back({p.param, 0, p.begin, p.size});
    fill(compute, whole, all);
  }
  comms_.replicas.broadcast(compute, whole, 0, name_);
  comms_.compute.broadcast(compute, whole, 0, name_);
  copy(compute, shard, part_of(whole, place(), group_size()));
}

void ShardedUnit::initialise(Stream& compute, Stream& gather, const FirstValues& values) {
  make_first_values(compute, trainable_, master_, values);
  make_first_values(compute, frozen_, frozen_shard_, values);
  for (const Tensor& moment : {m_, v_}) zero(on_shards(compute), moment);
  round_masters(compute);
  spread(compute, gather);
}

void ShardedUnit::clear_padding(Stream& compute) {
  const auto clear = [&](const FlatLayout& layout, const Tensor& shard) {
    int64_t at = 0;
    for (const FlatLayout::Piece& piece : layout.pieces(place())) {
      zero(on_shards(compute), shard.slice(at, piece.in_shard));
      at = piece.in_shard + piece.size;
    }
    zero(on_shards(compute), shard.slice(at, shard.size()));
  };
  if (has_gradients())
    for (const Tensor& t : {master_, m_, v_}) clear(trainable_, t);
  if (!frozen_.empty()) clear(frozen_, frozen_shard_);
}

void ShardedUnit::round_masters(Stream& compute) {
  if (!shard().copy.empty()) cast(on_shards(compute), {.y = shard().copy, .x = master_});
}

void ShardedUnit::spread(Stream& compute, Stream& gather) {
  publish(compute, gather);
  if (sharded_values_ || frozen_.empty() || group_size() == 1) return;
  gather.wait(updated_);  // every rank has made its part of the frozen values; they never change again
  comms_.gather.all_gather(gather, frozen_flat_, frozen_shard_, name_);
  gather.record(gathered_);
}

void ShardedUnit::prefetch(Stream& gather) {
  if (!sharded_values_ || state_ != State::sharded) return;
  value_slot_ = gather_room_->take(role_);
  if (!value_slot_) return;  // too early: a unit that is still needed has the slot
  const auto in_slot = [](const FlatLayout& layout, const Tensor& room) {
    return layout.empty() ? Tensor{} : room.slice(0, layout.size());
  };
  const Tensor trainable = in_slot(trainable_, value_slot_->trainable),
               frozen = in_slot(frozen_, value_slot_->frozen);
  if (options_.offload) upload(gather, trainable, frozen);
  gather.wait(value_slot_->free);  // compute may still be reading the slot's last tenant
  gather.wait(updated_);           // the optimizer has written this rank's shard
  const auto gather_segment = [&](const FlatLayout& layout, const Tensor& whole, const Tensor& shard) {
    if (layout.empty()) return;
    comms_.gather.all_gather(gather, whole, options_.offload ? part_of(whole, place(), group_size()) : shard,
                             name_);
    point_at(values_, params(), layout, whole);
  };
  gather_segment(trainable_, trainable, value_shard_);
  gather_segment(frozen_, frozen, frozen_shard_);
  gather.record(gathered_);
  state_ = State::gathering;
}

// This rank's part goes from the host to its place in the slot.
void ShardedUnit::upload(Stream& gather, const Tensor& trainable, const Tensor& frozen) {
  Stream& stream = copies_.to_device;
  stream.wait(value_slot_->free);  // compute may still be reading the slot's last tenant
  stream.wait(updated_);           // the optimizer has written this rank's shard
  if (!trainable_.empty()) copy(stream, part_of(trainable, place(), group_size()), value_shard_);
  if (!frozen_.empty()) copy(stream, part_of(frozen, place(), group_size()), frozen_shard_);
  stream.record(uploaded_);
  gather.wait(uploaded_);  // it is there
}

ParamView ShardedUnit::acquire(Stream& compute) {
  check(!sharded_values_ || state_ != State::sharded, "a unit is acquired before it is prefetched");
  compute.wait(gathered_);  // the values of all ranks have arrived
  if (sharded_values_) state_ = State::whole;
  return ParamView(values_);
}

void ShardedUnit::release(Stream& compute) {
  if (stays()) return;
  if (options_.poison) {
    fill_with_nan(compute, value_slot_->trainable);
    fill_with_nan(compute, value_slot_->frozen);
  }
  let_go(compute);
}

// Gives the slot back; no stage reads it any more.
void ShardedUnit::let_go(Stream& compute) {
  compute.record(value_slot_->free);
  value_slot_->taken = false;
  value_slot_ = nullptr;
  state_ = State::sharded;
}

// Where the gradients of a lane are written.
Tensor ShardedUnit::flat_gradients(int lane) const {
  if (direct_) return next_sum();
  const Tensor& lanes = gradient_slot_->lanes;
  return lanes.slice(lane, lane + 1).view({lanes.shape[1]}).slice(0, trainable_.size());
}

GradView ShardedUnit::grads(Stream& compute, int lane) {
  if (!has_gradients()) return GradView(gradients_);
  if (!direct_ && !gradient_slot_) {
    gradient_slot_ = &gradient_room_->next(role_);
    compute.wait(gradient_slot_->free);  // the exchange of the slot's last tenant still reads it
  }
  const Tensor flat = flat_gradients(lane);
  const bool adds = direct_ && adds_in_turn();  // to the micro-steps before
  if (!lane_zeroed_[static_cast<size_t>(lane)] && !adds) zero(compute, flat);
  lane_zeroed_[static_cast<size_t>(lane)] = true;
  point_at(gradients_, params(), trainable_, flat);
  return GradView(gradients_);
}

void ShardedUnit::reduce(Stream& compute, Stream& reduce, int64_t micro) {
  if (!has_gradients() || ++stages_done_ < role_.backward_stages) return;
  stages_done_ = 0;
  std::fill(lane_zeroed_.begin(), lane_zeroed_.end(), false);
  if (!direct_) {
    compute.record(ready_);
    reduce.wait(ready_);  // the backward pass has written all gradients
    add_up_lanes(reduce);
    reduce.record(gradient_slot_->free);  // the next tenant may write
    gradient_slot_ = nullptr;
  }
  sum_count_ = exact() ? sum_count_ + 1 : 1;
  Stream& adder = options_.offload ? copies_.to_host.host_side() : direct_ ? compute : reduce;
  carry(adder, micro);
  if (micro + 1 < options_.micro_steps) return;
  if (direct_) {
    compute.record(ready_);
    reduce.wait(ready_);  // the sums over this rank's lanes are complete
  }
  finish_sums(reduce);
  (options_.offload ? copies_.to_host : reduce).record(reduced_);
}

// The gradients of a micro-step become the next sum.
void ShardedUnit::add_up_lanes(Stream& reduce) {
  // The tree over the lanes of this rank; it ends in the first lane.
  for (int width = 1; width < options_.lanes; width *= 2)
    for (int lane = 0; lane + width < options_.lanes; lane += 2 * width)
      add(reduce, {.y = flat_gradients(lane), .a = flat_gradients(lane), .b = flat_gradients(lane + width)});
  Tensor mine = flat_gradients(0);
  if (options_.wire != DType::f32) {
    const Tensor rounded = gradient_room_->rounded().slice(0, mine.size());
    cast(reduce, {.y = rounded, .x = mine});
    mine = rounded;
  }
  make_sum(reduce, next_sum(), adds_in_turn(), [&](const Tensor& sum, bool accumulate) {
    if (whole_sums_)
      ordered_sum(reduce, {.y = sum, .lanes = mine.view({1, mine.size()}), .accumulate = accumulate});
    else
      sum_over_group(reduce, sum, mine, accumulate);
  });
}

// make(where, whether to add) makes a sum on the device. An offloaded one then goes to the host and, where it
// is to be added, is added there.
template <class Make>
void ShardedUnit::make_sum(Stream& reduce, const Tensor& sum, bool accumulate, Make&& make) {
  if (!options_.offload) return make(sum, accumulate);
  GradientRoom& room = *gradient_room_;
  const Tensor landing = room.landing.slice(0, sum.size());
  reduce.wait(room.landing_free);  // the sum before it has left
  make(landing, false);
  reduce.record(landed_);
  Stream& stream = copies_.to_host;
  stream.wait(landed_);  // it is complete
  const Tensor arrived = accumulate ? room.arrived.slice(0, sum.size()) : sum;
  copy(stream, arrived, landing);
  stream.record(room.landing_free);
  if (accumulate) add(stream.host_side(), {.y = sum, .a = sum, .b = arrived});
}

// sum = (or +=) this rank's part of `mine` of all ranks of the group.
void ShardedUnit::sum_over_group(Stream& reduce, const Tensor& sum, const Tensor& mine, bool accumulate) {
  Tensor received = gradient_room_->received().slice(0, mine.size());
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

// Adds up as a binary counter does: where two sums of equally many micro-steps stand side by side they become
// one; after the last micro-step all do.
void ShardedUnit::carry(Stream& stream, int64_t micro) {
  const auto join = [&] {
    const Tensor &left = sums_[static_cast<size_t>(sum_count_ - 2)],
                 &right = sums_[static_cast<size_t>(sum_count_ - 1)];
    add(stream, {.y = left, .a = left, .b = right});
    --sum_count_;
  };
  if (exact())
    for (int64_t digits = micro; digits & 1; digits >>= 1) join();
  if (micro + 1 < options_.micro_steps) return;
  while (sum_count_ > 1) join();
  sum_count_ = 0;
}

// What is left after the last micro-step: whole sums to their owners, then one sum over the replicas.
void ShardedUnit::finish_sums(Stream& reduce) {
  if (whole_sums_ && group_size() > 1) sum_over_group(reduce, reduced_sum_, sums_.front(), false);
  if (comms_.replicas.size() == 1) return;
  if (!options_.offload) return sum_over_replicas(reduce, reduced_sum_);
  make_sum(reduce, reduced_sum_, false, [&](const Tensor& sum, bool) {
    copies_.to_host.record(landed_);
    reduce.wait(landed_);  // the sum on the host is complete
    copy(reduce, sum, reduced_sum_);
    sum_over_replicas(reduce, sum);
  });
}

void ShardedUnit::sum_over_replicas(Stream& reduce, const Tensor& sum) {
  const int replicas = comms_.replicas.size();
  const Tensor received = gradient_room_->received().slice(0, sum.size());
  const Tensor part = part_of(sum, comms_.replicas.rank(), replicas);
  comms_.replicas.all_to_all(reduce, received, sum, name_);
  ordered_sum(reduce, {.y = part, .lanes = received.view({replicas, part.size()})});
  comms_.replicas.all_gather(reduce, sum, part, name_);
}

void ShardedUnit::wait_reduced(Stream& compute) {
  compute.wait(reduced_);  // the optimizer reads the sums
}

void ShardedUnit::publish(Stream& compute, Stream& gather) {
  if (group_size() == 1 && !sharded_values_) return;
  compute.record(updated_);
  if (sharded_values_) {
    if (state_ != State::sharded) let_go(compute);  // a root unit kept it; now it is out of date
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
  const Tensor whole = gradient_room_->received().slice(0, trainable_.size());
  if (options_.offload) copy(compute, part_of(whole, place(), group_size()), master_);
  comms_.compute.all_gather(compute, whole,
                            options_.offload ? part_of(whole, place(), group_size()) : master_, name_);
  return whole;
}

ShardedUnit::Shard ShardedUnit::shard() const {
  return {.p = master_,
          .m = m_,
          .v = v_,
          .copy = options_.compute == DType::f32 ? Tensor{} : value_shard_,
          .g = reduced_sum_,
          .decay_end = trainable_.decayed_in_shard(place())};
}

}  // namespace flatshard
