#include "train/step/optimizer.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/adamw8bit.h"
#include "kernels/sum_squares.h"
#include "runtime/memory.h"

namespace flatshard {

static_assert(FlatLayout::kShardMultiple % kSquaresChunk == 0, "shards end at chunk boundaries of the norm");

Optimizer::Optimizer(const OptimizerConfig& config, std::vector<ShardedUnit>& units, UnitResources& shared,
                     NormOrder order)
    : config_(config),
      units_(units),
      comm_(shared.comms.compute),
      shards_(shared.shards),
      pages_(shared.pages),
      order_(std::move(order)) {
  int64_t chunks = 0;
  for (const ShardedUnit& unit : units) chunks += unit.trainable().shard_size() / kSquaresChunk;
  Arena& beside_shards = shared.arenas.gradients;
  Arena& arena = shards_.on_host() ? shared.arenas.exchange : beside_shards;
  const int ranks = comm_.size();
  by_rank_ = arena.alloc(DType::f32, {ranks, chunks});
  by_parameter_ = ranks == 1 ? by_rank_.view({chunks}) : arena.alloc(DType::f32, {ranks * chunks});
  all_ = by_parameter_;
  if (const int sections = order_.sections.size(); sections > 1) {
    std::vector<int64_t> sizes(static_cast<size_t>(sections), 0);
    for (const NormOrder::Unit& unit : order_.units)
      sizes[static_cast<size_t>(unit.section)] += ranks * (unit.shard_size / kSquaresChunk);
    const int64_t widest = *std::max_element(sizes.begin(), sizes.end());
    by_section_ = arena.alloc(DType::f32, {sections, widest});
    all_ = arena.alloc(DType::f32, {std::accumulate(sizes.begin(), sizes.end(), int64_t{0})});
  }
  norm_ = arena.alloc(DType::f32, {1});
  coefficient_ = arena.alloc(DType::f32, {1});
  nonfinite_ = arena.alloc(DType::i32, {1});
  mine_ = part_of(by_rank_, comm_.rank(), ranks);
  mine_beside_shards_ = shards_.twin(beside_shards, mine_);
  coefficient_beside_shards_ = shards_.twin(beside_shards, coefficient_);
  nonfinite_beside_shards_ = shards_.twin(beside_shards, nonfinite_);
}

void Optimizer::measure(Stream& stream, double loss_scale) {
  const int ranks = comm_.size();
  const auto chunks_of = [](const ShardedUnit& unit) {
    return unit.trainable().shard_size() / kSquaresChunk;
  };
  int64_t at = 0;
  const Tensor parts = mine_beside_shards_.view({mine_.size()});
  for (ShardedUnit& unit : units_) {
    unit.wait_reduced(stream);
    if (!unit.has_gradients()) continue;
    sum_squares(shards_.worker(stream),
                {.partials = parts.slice(at, at + chunks_of(unit)), .x = unit.shard().g});
    at += chunks_of(unit);
  }
  shards_.pull(stream, mine_, mine_beside_shards_);
  if (ranks > 1) {
    comm_.all_gather(stream, by_rank_, mine_, "gradient norm");
    int64_t from = 0, to = 0;
    for (const ShardedUnit& unit : units_) {
      const int64_t n = chunks_of(unit);
      for (int rank = 0; rank < ranks; ++rank, to += n)
        if (n > 0)
          copy(stream, by_parameter_.slice(to, to + n), part_of(by_rank_, rank, ranks).slice(from, from + n));
      from += n;
    }
  }
  if (order_.sections.size() > 1) gather_sections(stream);
  const bool clips = config_.grad_clip > 0;
  clip_coefficient(stream, {.norm = norm_,
                            .coefficient = coefficient_,
                            .nonfinite = nonfinite_,
                            .partials = all_,
                            .max_norm = clips ? static_cast<float>(config_.grad_clip)
                                              : std::numeric_limits<float>::infinity(),
                            .scale = static_cast<float>(1.0 / loss_scale)});
  shards_.push(stream, coefficient_beside_shards_, coefficient_);
  shards_.push(stream, nonfinite_beside_shards_, nonfinite_);
}

// The sums of squares of all sections, in the order of the whole model.
void Optimizer::gather_sections(Stream& stream) {
  const int sections = order_.sections.size(), ranks = comm_.size();
  const auto of_section = [&](int section) { return part_of(by_section_, section, sections); };
  const Tensor mine = of_section(order_.sections.rank());
  copy(stream, mine.slice(0, by_parameter_.size()), by_parameter_);
  zero(stream, mine.slice(by_parameter_.size(), mine.size()));  // the padding, which is sent too
  order_.sections.all_gather(stream, by_section_, mine, "gradient norm");
  std::vector<int64_t> from(static_cast<size_t>(sections), 0);
  int64_t to = 0;
  for (const NormOrder::Unit& unit : order_.units) {
    const int64_t n = ranks * (unit.shard_size / kSquaresChunk);
    if (n == 0) continue;
    int64_t& begin = from[static_cast<size_t>(unit.section)];
    copy(stream, all_.slice(to, to + n), of_section(unit.section).slice(begin, begin + n));
    begin += n, to += n;
  }
}

void Optimizer::update(Stream& stream, double lr, int64_t step) {
  for (ShardedUnit& unit : units_) {
    if (!unit.has_gradients()) continue;
    const ShardedUnit::Shard shard = unit.shard();
    const Moments home{shard.m, shard.v}, moments = pages_.fetch(stream, home);
    const AdamW update{.p = shard.p,
                       .m = moments.m,
                       .v = moments.v,
                       .copy = shard.copy,
                       .g = shard.g,
                       .grad_scale = coefficient_beside_shards_,
                       .skip = nonfinite_beside_shards_,
                       .lr = lr,
                       .beta1 = config_.betas[0],
                       .beta2 = config_.betas[1],
                       .eps = config_.eps,
                       .weight_decay = config_.weight_decay,
                       .decay_end = shard.decay_end,
                       .step = step};
    if (moments.m.dtype == DType::u8)
      adamw8bit(shards_.worker(stream),
                {.step = update, .m_absmax = shard.m_absmax, .v_absmax = shard.v_absmax});
    else
      adamw(shards_.worker(stream), update);
    pages_.store(stream, home, moments);
  }
  pages_.finish(stream);
}

}  // namespace flatshard
