#include "train/step/optimizer.h"

#include <limits>

#include "kernels/adamw.h"
#include "kernels/sum_squares.h"
#include "runtime/memory.h"

namespace flatshard {

static_assert(FlatLayout::kShardMultiple % kSquaresChunk == 0, "a chunk of the norm is never cut by a rank");

Optimizer::Optimizer(const OptimizerConfig& config, std::vector<ShardedUnit>& units, Communicator& comm,
                     const UnitOptions& options, UnitArenas arenas)
    : config_(config), units_(units), comm_(comm), offload_(options.offload) {
  int64_t chunks = 0;
  for (const ShardedUnit& unit : units) chunks += unit.trainable().shard_size() / kSquaresChunk;
  Arena& arena = offload_ ? arenas.exchange : arenas.gradients;
  by_rank_ = arena.alloc(DType::f32, {comm.size(), chunks});
  by_place_ = comm.size() == 1 ? by_rank_.view({chunks}) : arena.alloc(DType::f32, {comm.size() * chunks});
  norm_ = arena.alloc(DType::f32, {1});
  coefficient_ = arena.alloc(DType::f32, {1});
  nonfinite_ = arena.alloc(DType::i32, {1});
  mine_ = offload_ ? arenas.gradients.alloc(DType::f32, {1, chunks})
                   : part_of(by_rank_, comm.rank(), comm.size());
  shard_coefficient_ = offload_ ? arenas.gradients.alloc(DType::f32, {1}) : coefficient_;
  shard_nonfinite_ = offload_ ? arenas.gradients.alloc(DType::i32, {1}) : nonfinite_;
}

void Optimizer::measure(Stream& stream, double loss_scale) {
  const int ranks = comm_.size();
  const Tensor mine = part_of(by_rank_, comm_.rank(), ranks);
  const auto chunks_of = [](const ShardedUnit& unit) {
    return unit.trainable().shard_size() / kSquaresChunk;
  };
  int64_t at = 0;
  const Tensor parts = mine_.view({mine_.size()});
  for (ShardedUnit& unit : units_) {
    unit.wait_reduced(stream);
    if (!unit.has_gradients()) continue;
    sum_squares(on_shards(stream), {.partials = parts.slice(at, at + chunks_of(unit)), .x = unit.shard().g});
    at += chunks_of(unit);
  }
  if (offload_) copy(stream, mine, mine_);
  if (ranks > 1) {
    comm_.all_gather(stream, by_rank_, mine, "gradient norm");
    int64_t from = 0, to = 0;
    for (const ShardedUnit& unit : units_) {
      const int64_t n = chunks_of(unit);
      for (int rank = 0; rank < ranks; ++rank, to += n)
        if (n > 0)
          copy(stream, by_place_.slice(to, to + n), part_of(by_rank_, rank, ranks).slice(from, from + n));
      from += n;
    }
  }
  const bool clips = config_.grad_clip > 0;
  clip_coefficient(stream, {.norm = norm_,
                            .coefficient = coefficient_,
                            .nonfinite = nonfinite_,
                            .partials = by_place_,
                            .max_norm = clips ? static_cast<float>(config_.grad_clip)
                                              : std::numeric_limits<float>::infinity(),
                            .scale = static_cast<float>(1.0 / loss_scale)});
  if (!offload_) return;
  copy(stream, shard_coefficient_, coefficient_);
  copy(stream, shard_nonfinite_, nonfinite_);
}

void Optimizer::update(Stream& stream, double lr, int64_t step) {
  for (ShardedUnit& unit : units_) {
    if (!unit.has_gradients()) continue;
    const ShardedUnit::Shard shard = unit.shard();
    adamw(on_shards(stream), {.p = shard.p,
                              .m = shard.m,
                              .v = shard.v,
                              .copy = shard.copy,
                              .g = shard.g,
                              .grad_scale = shard_coefficient_,
                              .skip = shard_nonfinite_,
                              .lr = lr,
                              .beta1 = config_.betas[0],
                              .beta2 = config_.betas[1],
                              .eps = config_.eps,
                              .weight_decay = config_.weight_decay,
                              .decay_end = shard.decay_end,
                              .step = step});
  }
}

}  // namespace flatshard
