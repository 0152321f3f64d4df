#include "comm/lane_sums.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "kernels/elementwise.h"
#include "kernels/ordered_sum.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

// The number of sums of lanes that exist at once: the newest, and one for each digit 1 of the number of
// earlier sums.
int sums_at_once(const UnitOptions& options) {
  if (options.reduction != Reduction::exact) return 1;
  const uint64_t last = static_cast<uint64_t>(options.lane_rounds() - 1);
  return std::max(std::popcount(last), static_cast<int>(std::bit_width(last)) - 1) + 1;
}

}  // namespace

void fill_with_nan(Stream& stream, const Tensor& t) {
  if (t.empty() || t.device.is_cuda()) return;
  stream.run("poison", [t] { std::memset(t.data, 0xff, static_cast<size_t>(t.bytes())); });
}

LaneSums::LaneSums(const ParamList& params, const FlatLayout& layout, const UnitRole& role,
                   UnitResources& shared)
    : params_(params),
      layout_(layout),
      role_(role),
      name_(intern(role.name)),
      group_(role.parts > 1 ? shared.comms.reduce.of_place() : shared.comms.reduce),
      replicas_(shared.comms.replicas),
      options_(shared.options),
      gradient_slots_(shared.gradient_slots),
      shards_(shared.shards),
      unsharded_(sums_are_unsharded(options_, groups_of(role, shared.comms.groups()))),
      direct_(writes_sums_directly(options_, shared.comms.groups()) && role.in_flight == 1),
      lanes_(options_.lanes * role.parts),
      open_(
          static_cast<size_t>(role.in_flight),
          Open{.lanes = std::vector<Lane>(static_cast<size_t>(lanes_),
                                          Lane{.gradients = std::vector<Gradient>(params.specs().size())})}) {
  Arena& arena = shared.arenas.gradients;
  for (int i = 0; i < sums_at_once(options_); ++i)
    sums_.push_back(arena.alloc(DType::f32, {unsharded_ ? layout.size() : layout.shard_size()}));
  reduced_sum_ =
      unsharded_ && group_size() > 1 ? arena.alloc(DType::f32, {layout.shard_size()}) : sums_.front();
}

void LaneSums::clear_padding(Stream& compute) const {
  if (!direct_) return;
  for (const Tensor& sum : sums_) zero_padding(compute, sum);
}

// The buffer for the gradients of a lane.
Tensor LaneSums::flat_gradients(const Open& of, int lane) const {
  if (direct_) return next_sum();
  return of.slot->lanes.slice(lane * layout_.size(), (lane + 1) * layout_.size());
}

// Nothing else in the buffer of a lane has to be cleared: the first op that computes a gradient writes it.
void LaneSums::zero_padding(Stream& compute, const Tensor& flat) const {
  int64_t at = 0;
  for (const FlatLayout::Extent& extent : layout_.extents()) {
    if (at < extent.begin) zero(compute, flat.slice(at, extent.begin));
    at = extent.begin + extent.size;
  }
  if (at < flat.size()) zero(compute, flat.slice(at, flat.size()));
}

void LaneSums::begin(Stream& compute, Lane& lane, const Tensor& flat) const {
  const bool adds = direct_ && adds_in_turn();  // adds to the sum of the previous micro-steps
  for (const auto& [param, first, tensor] : layout_.values(flat)) {
    lane.gradients[static_cast<size_t>(param.index)] = {tensor.view(params_[param].shape), adds};
    if (options_.poison && !adds) fill_with_nan(compute, tensor);
  }
  if (!direct_) zero_padding(compute, flat);
  lane.begun = true;
}

std::vector<Gradient>& LaneSums::lane(Stream& compute, int lane, int64_t micro) {
  Open& now = open(micro);
  Lane& its = now.lanes[static_cast<size_t>(lane)];
  if (!its.begun) begin(compute, its, flat_gradients(now, lane));
  return its.gradients;
}

bool LaneSums::completes_lanes(int64_t micro) {
  Open& now = open(micro);
  if (++now.layers_done < role_.backward_layers) return false;
  now.layers_done = 0;
  return (micro + 1) % options_.lane_steps == 0;  // otherwise the next micro-step adds to the same lane
}

void LaneSums::finish_lanes(Stream& compute, int64_t micro) {
  for (Lane& lane : open(micro).lanes) {
    for (const Gradient& gradient : lane.gradients)
      if (!gradient.tensor.empty() && !gradient.written) zero(compute, gradient.tensor);
    lane.begun = false;
  }
}

void LaneSums::add_up_lanes(Stream& reduce, int64_t micro) { add_up(reduce, open(micro)); }

// Makes the gradients of a micro-step's lanes, or of a lane of several micro-steps, the next sum.
void LaneSums::add_up(Stream& reduce, const Open& of) {
  // The tree over the lanes leaves its sum in the first lane.
  for (int width = 1; width < lanes_; width *= 2)
    for (int lane = 0; lane + width < lanes_; lane += 2 * width)
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
  if (unsharded_)
    ordered_sum(reduce, {.y = to.values, .lanes = mine.view({1, mine.size()}), .accumulate = to.accumulate});
  else
    sum_over_group(reduce, to.values, mine, to.accumulate);
  shards_.store(reduce, to);
}

// sum = (or +=) this rank's part of `mine` of all ranks of the group.
void LaneSums::sum_over_group(Stream& reduce, const Tensor& sum, const Tensor& mine, bool accumulate) {
  const Tensor workspace = gradient_slots_.received().slice(0, mine.size());
  if (options_.reduction != Reduction::native)
    return group_.exact_sum(
        reduce, {.shard = sum, .full = mine, .workspace = workspace, .accumulate = accumulate}, name_);
  const Tensor part = workspace.slice(0, sum.size());
  group_.reduce_scatter(reduce, part, mine, name_);
  ordered_sum(reduce, {.y = sum, .lanes = part.view({1, part.size()}), .accumulate = accumulate});
}

// Adds up sums like a binary counter: two neighbouring sums of equally many lanes become one. After the last
// lane all sums become one.
void LaneSums::carry(Stream& stream, int64_t micro) {
  const int64_t round = micro / options_.lane_steps;
  sum_count_ = exact() ? sum_count_ + 1 : 1;
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

// After the last micro-step: reduces unsharded sums to the ranks that own their shards, then sums over
// replicas.
void LaneSums::finish(Stream& reduce) {
  if (unsharded_ && group_size() > 1) sum_over_group(reduce, reduced_sum_, sums_.front(), false);
  if (replicas_.size() == 1) return;
  const ShardPlacement::Build total = shards_.reopen(reduce, reduced_sum_);
  sum_over_replicas(reduce, total.values);
  shards_.store(reduce, total);
}

void LaneSums::sum_over_replicas(Stream& reduce, const Tensor& sum) {
  const Tensor part = part_of(sum, replicas_.rank(), replicas_.size());
  replicas_.exact_sum(
      reduce, {.shard = part, .full = sum, .workspace = gradient_slots_.received().slice(0, sum.size())},
      name_);
  replicas_.all_gather(reduce, sum, part, name_);
}

void LaneSums::plan_last_exchange(Stream& reduce) {
  if (!direct_) add_up(reduce, Open{.slot = &next_slot()});
  finish(reduce);
}

}  // namespace flatshard
