#include "comm/sharded_unit.h"

#include <algorithm>
#include <bit>

#include "kernels/elementwise.h"
#include "kernels/init.h"
#include "kernels/ordered_sum.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

bool writes_sums_directly(int ranks, const UnitOptions& options) {
  return ranks == 1 && options.lanes == 1 && options.wire == DType::f32;
}

// How many sums of micro-steps exist at once: the one just made, and one for each digit 1 of the number of
// those before it.
int sums_at_once(int64_t micro_steps) {
  const uint64_t last = static_cast<uint64_t>(micro_steps - 1);
  return std::max(std::popcount(last), static_cast<int>(std::bit_width(last)) - 1) + 1;
}

// Views of the parameters in a flat buffer; those of another segment are left as they are.
void point_at(std::vector<Tensor>& views, const ParamList& params, const FlatLayout& layout,
              const Tensor& flat) {
  for (const FlatLayout::Place& place : layout.places())
    views[static_cast<size_t>(place.param.index)] =
        flat.slice(place.begin, place.begin + place.size).view(params[place.param].shape);
}

}  // namespace

GradientRoom::GradientRoom(const std::vector<ParamList>& units, const std::vector<int>& stages_of_unit,
                           int ranks, const UnitOptions& options, UnitArenas arenas)
    : own_(units.size()) {
  if (writes_sums_directly(ranks, options)) return;
  const auto size_of_unit = [&](size_t unit) {
    return FlatLayout(units[unit], Segment::trainable, ranks).size();
  };
  const auto slot = [&](int64_t size) {
    return size == 0 ? Tensor{} : arenas.exchange.alloc(DType::f32, {options.lanes, size});
  };
  int64_t largest = 0, largest_in_turn = 0;
  for (size_t unit = 0; unit < units.size(); ++unit) {
    largest = std::max(largest, size_of_unit(unit));
    if (stages_of_unit[unit] > 1)
      own_[unit].lanes = slot(size_of_unit(unit));
    else
      largest_in_turn = std::max(largest_in_turn, size_of_unit(unit));
  }
  for (Slot& s : ring_) s.lanes = slot(largest_in_turn);
  if (options.wire != DType::f32) rounded_ = arenas.exchange.alloc(options.wire, {largest});
  if (ranks > 1) received_ = arenas.exchange.alloc(options.wire, {largest});
}

ShardedUnit::ShardedUnit(const ParamList& params, int index, int stages, Communicators comms,
                         const UnitOptions& options, UnitArenas arenas, GradientRoom& room)
    : params_(&params),
      index_(index),
      stages_(stages),
      comms_(comms),
      options_(options),
      room_(&room),
      trainable_(params, Segment::trainable, comms.gather.size()),
      frozen_(params, Segment::frozen, comms.gather.size()),
      direct_(writes_sums_directly(comms.gather.size(), options)),
      values_(params.specs().size()),
      gradients_(params.specs().size()),
      lane_zeroed_(static_cast<size_t>(options.lanes)) {
  check(options.wire == DType::f32 || options.lanes == 1,
        "gradients of several lanes travel as one fp32 sum, ", "not as ", options.wire);
  if (!frozen_.empty()) {
    frozen_flat_ = arenas.parameters.alloc(options.compute, {frozen_.size()});
    point_at(values_, params, frozen_, frozen_flat_);
  }
  if (trainable_.empty()) return;
  const Shape shard{trainable_.shard_size()};
  values_flat_ = arenas.parameters.alloc(options.compute, {trainable_.size()});
  point_at(values_, params, trainable_, values_flat_);
  // In f32 the masters are this rank's part of the values.
  master_ = options.compute == DType::f32 ? part_of(values_flat_, rank(), rank_count())
                                          : arenas.optimizer.alloc(DType::f32, shard);
  m_ = arenas.optimizer.alloc(DType::f32, shard);
  v_ = arenas.optimizer.alloc(DType::f32, shard);
  for (int i = 0; i < sums_at_once(options.micro_steps); ++i)
    sums_.push_back(arenas.gradients.alloc(DType::f32, shard));
}

void ShardedUnit::initialise(Stream& compute, Stream& gather, uint64_t seed) {
  const auto first_values = [&](ParamId id, const Tensor& y, int64_t first) {
    const ParamSpec& spec = params()[id];
    init_param(compute, {.y = y, .init = spec.init, .random = RandomStream(seed, spec.name), .first = first});
  };
  if (!frozen_.empty()) zero(compute, frozen_flat_);
  for (const FlatLayout::Place& place : frozen_.places())
    first_values(place.param, frozen_flat_.slice(place.begin, place.begin + place.size), 0);
  if (!has_gradients()) return;
  for (const Tensor& t : {master_, m_, v_}) zero(compute, t);
  for (const FlatLayout::Piece& piece : trainable_.pieces(rank()))
    first_values(piece.param, master_.slice(piece.in_shard, piece.in_shard + piece.size), piece.in_param);
  if (!shard().copy.empty()) cast(compute, {.y = shard().copy, .x = master_});
  publish(compute, gather);
}

ParamView ShardedUnit::acquire(Stream& compute) {
  compute.wait(gathered_);  // the other ranks' parts of the last update
  return ParamView(values_);
}

// Where the gradients of a lane are written.
Tensor ShardedUnit::flat_gradients(int lane) const {
  if (direct()) return sums_[static_cast<size_t>(sum_count_)];
  const Tensor& lanes = slot_->lanes;
  return lanes.slice(lane, lane + 1).view({lanes.shape[1]}).slice(0, trainable_.size());
}

GradView ShardedUnit::grads(Stream& compute, int lane) {
  if (!has_gradients()) return GradView(gradients_);
  if (!direct() && !slot_) {
    slot_ = stages_ > 1 ? &room_->own(index_) : &room_->next();
    compute.wait(slot_->free);  // the exchange of the slot's last tenant still reads it
  }
  const Tensor flat = flat_gradients(lane);
  if (!lane_zeroed_[static_cast<size_t>(lane)]) zero(compute, flat);
  lane_zeroed_[static_cast<size_t>(lane)] = true;
  point_at(gradients_, params(), trainable_, flat);
  return GradView(gradients_);
}

void ShardedUnit::reduce(Stream& compute, Stream& reduce, int64_t micro) {
  if (!has_gradients() || ++stages_done_ < stages_) return;
  stages_done_ = 0;
  std::fill(lane_zeroed_.begin(), lane_zeroed_.end(), false);
  if (micro == 0) check(sum_count_ == 0, "the sums of the last step were not taken");
  if (direct()) {
    ++sum_count_;
    carry(compute, micro);
    return;
  }
  compute.record(ready_);
  reduce.wait(ready_);  // the backward pass has written all gradients
  exchange(reduce, sums_[static_cast<size_t>(sum_count_++)]);
  carry(reduce, micro);
  if (micro + 1 == options_.micro_steps) reduce.record(reduced_);
  slot_ = nullptr;
}

// sum = this rank's shard of the gradients of all lanes of all ranks.
void ShardedUnit::exchange(Stream& reduce, const Tensor& sum) {
  // The tree over the lanes of this rank; it ends in the first lane.
  for (int width = 1; width < options_.lanes; width *= 2)
    for (int lane = 0; lane + width < options_.lanes; lane += 2 * width)
      add(reduce, {.y = flat_gradients(lane), .a = flat_gradients(lane), .b = flat_gradients(lane + width)});
  Tensor mine = flat_gradients(0);
  if (options_.wire != DType::f32) {
    const Tensor rounded = room_->rounded().slice(0, mine.size());
    cast(reduce, {.y = rounded, .x = mine});
    mine = rounded;
  }
  if (rank_count() > 1) {
    const Tensor received = room_->received().slice(0, mine.size());
    comms_.reduce.all_to_all(reduce, received, mine);
    mine = received;
  }
  ordered_sum(reduce, {.y = sum, .lanes = mine.view({rank_count(), trainable_.shard_size()})});
  reduce.record(slot_->free);  // the next tenant may write
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
  for (int64_t digits = micro; digits & 1; digits >>= 1) join();
  if (micro + 1 < options_.micro_steps) return;
  while (sum_count_ > 1) join();
  sum_count_ = 0;
}

void ShardedUnit::wait_reduced(Stream& compute) {
  compute.wait(reduced_);  // the optimizer reads the sums
}

void ShardedUnit::publish(Stream& compute, Stream& gather) {
  if (!has_gradients() || rank_count() == 1) return;
  compute.record(updated_);
  gather.wait(updated_);  // the optimizer has written this rank's part
  comms_.gather.all_gather(gather, values_flat_);
  gather.record(gathered_);
}

Tensor ShardedUnit::gather_masters(Stream& compute) {
  if (rank_count() == 1) return master_;
  if (options_.compute == DType::f32) return values_flat_;
  GradientRoom::Slot& slot = stages_ > 1 ? room_->own(index_) : room_->next();
  compute.wait(slot.free);  // the exchange of the last step has read it
  const Tensor whole = slot.lanes.view({slot.lanes.size()}).slice(0, trainable_.size());
  copy(compute, part_of(whole, rank(), rank_count()), master_);
  comms_.gather.all_gather(compute, whole);
  return whole;
}

ShardedUnit::Shard ShardedUnit::shard() const {
  return {.p = master_,
          .m = m_,
          .v = v_,
          .copy = options_.compute == DType::f32 ? Tensor{} : part_of(values_flat_, rank(), rank_count()),
          .g = sums_.front(),
          .decay_end = trainable_.decayed_in_shard(rank())};
}

}  // namespace flatshard
