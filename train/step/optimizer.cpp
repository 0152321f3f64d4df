#include "train/step/optimizer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/sum_squares.h"
#include "runtime/memory.h"

namespace flatshard {

static_assert(FlatLayout::kShardMultiple % kSquaresInterval == 0,
              "shards end at interval boundaries of the norm");

Optimizer::Optimizer(const OptimizerConfig& config, std::vector<ShardedUnit>& units, UnitResources& shared,
                     NormOrder order)
    : config_(config),
      units_(units),
      group_(shared.comms.compute),
      shards_(shared.shards),
      pages_(shared.pages),
      order_(std::move(order)) {
  for (const ShardedUnit& unit : units)
    intervals_.push_back(unit.trainable().shard_size() / kSquaresInterval);
  Arena& beside_shards = shared.arenas.gradients;
  Arena& arena = shards_.on_host() ? shared.arenas.exchange : beside_shards;
  const int ranks = group_.size();
  by_rank_ =
      arena.alloc(DType::f32, {ranks, std::accumulate(intervals_.begin(), intervals_.end(), int64_t{0})});
  sums_ = own_sums_ = arena.alloc(DType::i32, {sums_of_partials(ranks, intervals_), 2});
  if (const int stages = order_.stages.size(); stages > 1) {
    std::vector<int64_t> sizes(static_cast<size_t>(stages), 0);
    for (const NormOrder::Unit& unit : order_.units) sizes[static_cast<size_t>(unit.stage)] += sums_of(unit);
    const int64_t widest = *std::max_element(sizes.begin(), sizes.end());
    by_stage_ = arena.alloc(DType::i32, {stages * widest, 2});
    sums_ = arena.alloc(DType::i32, {std::accumulate(sizes.begin(), sizes.end(), int64_t{0}), 2});
  }
  norm_ = arena.alloc(DType::f32, {1});
  coefficient_ = arena.alloc(DType::f32, {1});
  nonfinite_ = arena.alloc(DType::i32, {1});
  mine_ = part_of(by_rank_, group_.rank(), ranks);
  mine_beside_shards_ = shards_.twin(beside_shards, mine_);
  coefficient_beside_shards_ = shards_.twin(beside_shards, coefficient_);
  nonfinite_beside_shards_ = shards_.twin(beside_shards, nonfinite_);
}

int64_t Optimizer::sums_of(const NormOrder::Unit& unit) const {
  const int64_t intervals = unit.shard_size / kSquaresInterval;
  return sums_of_partials(group_.size(), {&intervals, 1});
}

// The squares of the last unit are summed first, as its gradients are reduced first: the squares of one unit
// are summed while the next is still being reduced.
void Optimizer::measure(Stream& stream, double loss_scale) {
  const Tensor parts = mine_beside_shards_.view({mine_.size()});
  int64_t end = parts.size();
  for (size_t i = units_.size(); i-- > 0; end -= intervals_[i]) {
    units_[i].wait_reduced(stream);
    if (!units_[i].has_gradients()) continue;
    sum_squares(shards_.worker(stream),
                {.partials = parts.slice(end - intervals_[i], end), .x = units_[i].shard().g});
  }
  shards_.pull(stream, mine_, mine_beside_shards_);
  if (group_.size() > 1) group_.all_gather(stream, by_rank_, mine_, "gradient norm");
  sum_partials(stream, {.sums = own_sums_, .partials = by_rank_, .units = intervals_});
  if (order_.stages.size() > 1) gather_stages(stream);
  const bool clips = config_.grad_clip > 0;
  clip_coefficient(stream, {.norm = norm_,
                            .coefficient = coefficient_,
                            .nonfinite = nonfinite_,
                            .sums = sums_,
                            .max_norm = clips ? static_cast<float>(config_.grad_clip)
                                              : std::numeric_limits<float>::infinity(),
                            .scale = static_cast<float>(1.0 / loss_scale)});
  shards_.push(stream, coefficient_beside_shards_, coefficient_);
  shards_.push(stream, nonfinite_beside_shards_, nonfinite_);
}

// The sums of all stages, in the order of the whole model's units.
void Optimizer::gather_stages(Stream& stream) {
  const int stages = order_.stages.size();
  const int64_t widest = by_stage_.shape[0] / stages, own = own_sums_.shape[0];
  const int64_t first = order_.stages.rank() * widest;
  copy(stream, by_stage_.slice(first, first + own), own_sums_);
  zero(stream, by_stage_.slice(first + own, first + widest));  // the padding, which is sent too
  order_.stages.all_gather(stream, by_stage_, by_stage_.slice(first, first + widest), "gradient norm");
  std::vector<int64_t> from;
  for (int stage = 0; stage < stages; ++stage) from.push_back(stage * widest);
  int64_t to = 0;
  for (const NormOrder::Unit& unit : order_.units) {
    const int64_t n = sums_of(unit);
    if (n == 0) continue;
    int64_t& begin = from[static_cast<size_t>(unit.stage)];
    copy(stream, sums_.slice(to, to + n), by_stage_.slice(begin, begin + n));
    begin += n, to += n;
  }
}

void Optimizer::update(Stream& stream, double lr, int64_t step,
                       const std::function<void(ShardedUnit& unit)>& updated) {
  for (ShardedUnit& unit : units_) {
    update_unit(stream, unit, lr, step);
    updated(unit);
  }
  pages_.finish(stream);
}

void Optimizer::update_unit(Stream& stream, const ShardedUnit& unit, double lr, int64_t step) {
  if (!unit.has_gradients()) return;
  OptimizerShard shard = unit.shard();
  const UnitState home{unit.optimizer(), shard.p.size(), shard.state};
  shard.state = pages_.fetch(stream, home);
  unit.optimizer().update(shards_.worker(stream), {.shard = shard,
                                                   .grad_scale = coefficient_beside_shards_,
                                                   .skip = nonfinite_beside_shards_,
                                                   .lr = lr,
                                                   .beta1 = config_.betas[0],
                                                   .beta2 = config_.betas[1],
                                                   .eps = config_.eps,
                                                   .weight_decay = config_.weight_decay,
                                                   .step = step});
  pages_.store(stream, home, shard.state);
}

}  // namespace flatshard
