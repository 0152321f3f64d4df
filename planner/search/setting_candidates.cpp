#include <algorithm>
#include <utility>

#include "planner/search/setting_search.h"
#include "runtime/text.h"
#include "train/setup/batching.h"

namespace flatshard {
namespace {

constexpr int64_t kLargestMicroBatch = 64, kMostStages = 16;

// The candidate with one more change, which `set` makes and `argument` states.
template <class Set>
Candidate changed(Candidate candidate, const std::string& argument, Set&& set) {
  set(candidate.config);
  candidate.changes.push_back(argument);
  return candidate;
}

// Every candidate with all of its variants.
template <class Variants>
Candidates each(const Candidates& from, Variants&& variants) {
  Candidates all;
  for (const Candidate& candidate : from)
    for (Candidate& variant : variants(candidate)) all.push_back(std::move(variant));
  return all;
}

Candidates with_stages(const Candidate& c, int ranks) {
  Candidates all{c};
  for (int64_t n = 1; n <= kMostStages && n <= ranks; n *= 2)
    if (ranks % n == 0 && n != c.config.parallel.stages)
      all.push_back(changed(c, str("--parallel.stages=", n), [&](Config& x) { x.parallel.stages = n; }));
  return all;
}

// The sizes of hybrid groups: whole nodes, or halves of one.
std::vector<int64_t> group_sizes(int64_t ranks, const Cluster& cluster) {
  std::vector<int64_t> sizes;
  const int64_t least = ranks > cluster.node_gpus ? cluster.node_gpus : std::max<int64_t>(2, ranks / 2);
  for (int64_t size = least; size < ranks; size *= 2)
    if (ranks % size == 0) sizes.push_back(size);
  return sizes;
}

Candidates with_strategies(const Candidate& c, int ranks, const Cluster& cluster) {
  const int64_t stage_ranks = ranks / c.config.parallel.stages;
  Candidates all{c};
  if (stage_ranks < 2) return all;
  const ParallelConfig& given = c.config.parallel;
  for (const Strategy strategy :
       {Strategy::full_shard, Strategy::shard_grad_op, Strategy::zero1, Strategy::no_shard})
    if (strategy != given.strategy)
      all.push_back(changed(c, str("--parallel.strategy=", strategy), [&](Config& x) {
        x.parallel.strategy = strategy;
        x.parallel.group_size = 0;
      }));
  for (const int64_t size : group_sizes(stage_ranks, cluster))
    if (given.strategy != Strategy::hybrid || given.group_size != size)
      all.push_back(
          changed(c, str("--parallel.strategy=hybrid --parallel.group_size=", size), [&](Config& x) {
            x.parallel.strategy = Strategy::hybrid;
            x.parallel.group_size = size;
          }));
  return all;
}

// The ranks of a node that can divide the experts.
Candidates with_expert_ranks(const Candidate& c, int ranks, const Cluster& cluster, int64_t experts) {
  Candidates all{c};
  const ParallelConfig& given = c.config.parallel;
  const bool hybrid = given.strategy == Strategy::hybrid;
  if (!hybrid && given.strategy != Strategy::full_shard) return all;
  const int64_t group = hybrid ? given.group_size : ranks / given.stages;
  for (int64_t n = 1; n <= std::min<int64_t>(group, cluster.node_gpus); n *= 2)
    if (n != given.expert_ranks && group % n == 0 && experts % n == 0 && experts > 0)
      all.push_back(
          changed(c, str("--parallel.expert_ranks=", n), [&](Config& x) { x.parallel.expert_ranks = n; }));
  return all;
}

Candidates with_recomputation(const Candidate& c) {
  Candidates all{c};
  for (const Recompute recompute :
       {Recompute::none, Recompute::selective, Recompute::except_attention, Recompute::full})
    if (recompute != c.config.train.recompute)
      all.push_back(changed(c, str("--train.recompute=", recompute),
                            [&](Config& x) { x.train.recompute = recompute; }));
  return all;
}

// Micro-batches that divide the sequences of a rank. If the lanes stay as in the config, a larger micro-batch
// takes memory for the gradients of more lanes.
Candidates with_batches(const Candidate& c, int ranks, SearchScope scope) {
  const int64_t stage_ranks = ranks / c.config.parallel.stages,
                of_rank = c.config.train.total_batch_size / stage_ranks,
                given = c.config.train.batch_size_per_device,
                lane = lane_size_of(c.config, static_cast<int>(stage_ranks));
  Candidates all{c};
  for (int64_t size = 1; size <= std::min(of_rank, kLargestMicroBatch); ++size) {
    if (size == given || of_rank % size != 0) continue;
    const std::string argument = str("--train.batch_size_per_device=", size);
    const bool sets_lane = c.config.train.lane_size > 0;
    if (!sets_lane && stage_ranks > 1 && size % lane == 0)
      all.push_back(changed(c, str(argument, " --train.lane_size=", lane), [&](Config& x) {
        x.train.batch_size_per_device = size;
        x.train.lane_size = lane;
      }));
    if (scope == SearchScope::same_results && !sets_lane) continue;
    all.push_back(changed(c, argument, [&](Config& x) { x.train.batch_size_per_device = size; }));
  }
  return all;
}

Candidates with_reductions(const Candidate& c, int ranks) {
  Candidates all{c};
  if (ranks == c.config.parallel.stages) return all;
  for (const Reduction reduction : {Reduction::exact, Reduction::sequential, Reduction::native})
    if (reduction != c.config.parallel.reduction)
      all.push_back(changed(c, str("--parallel.reduction=", reduction),
                            [&](Config& x) { x.parallel.reduction = reduction; }));
  return all;
}

// The optimizer kinds that keep moments in paged host memory, in 8 bits, or both.
std::vector<OptimizerChoice> smaller_moments(const OptimizerChoice& given) {
  std::vector<OptimizerChoice> choices;
  const auto add = [&](const OptimizerKind* row, bool paged) {
    OptimizerChoice choice = given;
    choice.row = row;
    choice.paged = paged;
    choices.push_back(choice);
  };
  if (!given.paged) add(given.row, true);
  for (const OptimizerKind& kind : optimizer_kinds())
    if (kind.without_blocks == given.row) {
      if (!given.paged) add(&kind, false);
      add(&kind, true);
    }
  return choices;
}

Candidates with_short_head(const Candidate& c) {
  Candidates all{c};
  if (c.config.train.head_chunk > kShortHeadChunk)
    all.push_back(changed(c, str("--train.head_chunk=", kShortHeadChunk),
                          [](Config& x) { x.train.head_chunk = kShortHeadChunk; }));
  return all;
}

Candidates with_short_tiles(const Candidate& c) {
  Candidates all{c};
  if (has_shorter_tiles(c.config))
    all.push_back(changed(c, str("--train.tile=", kTile), [](Config& x) { x.train.tile = kTile; }));
  return all;
}

Candidates with_stored_activations(const Candidate& c) {
  Candidates all{c};
  if (repeats_blocks(c.config.train.recompute) && !c.config.train.offload_activations)
    all.push_back(changed(c, "--train.offload_activations=true",
                          [](Config& x) { x.train.offload_activations = true; }));
  return all;
}

}  // namespace

Candidates candidates_of(const Config& config, int ranks, const Cluster& cluster, SearchScope scope,
                         int64_t experts) {
  Candidates all{{config, {}}};
  if (scope == SearchScope::all) all = each(all, [&](const Candidate& c) { return with_stages(c, ranks); });
  all = each(all, [&](const Candidate& c) { return with_strategies(c, ranks, cluster); });
  all = each(all, [&](const Candidate& c) { return with_expert_ranks(c, ranks, cluster, experts); });
  all = each(all, with_recomputation);
  all = each(all, [&](const Candidate& c) { return with_batches(c, ranks, scope); });
  if (scope == SearchScope::all)
    all = each(all, [&](const Candidate& c) { return with_reductions(c, ranks); });
  return all;
}

Candidates with_less_memory(const Candidate& candidate, bool offload) {
  Candidates all{candidate};
  if (!candidate.config.parallel.offload) {
    for (const OptimizerChoice& choice : smaller_moments(candidate.config.optimizer.kind))
      all.push_back(changed(candidate, "--optimizer.kind=" + name_of(choice),
                            [&](Config& x) { x.optimizer.kind = choice; }));
    if (offload)
      all.push_back(
          changed(candidate, "--parallel.offload=true", [](Config& x) { x.parallel.offload = true; }));
  }
  all = each(all, with_short_head);
  all = each(all, with_short_tiles);
  all = each(all, with_stored_activations);
  all.erase(all.begin());  // removes the candidate itself
  return all;
}

Candidates with_fewer_waits(const Candidate& candidate) {
  Candidates all;
  const ParallelConfig& given = candidate.config.parallel;
  for (const int64_t depth : {2, 4})
    if (depth > given.depth)
      all.push_back(
          changed(candidate, str("--parallel.depth=", depth), [&](Config& x) { x.parallel.depth = depth; }));
  if (given.stages > 1 && given.schedule != PipelineSchedule::interleaved)
    all.push_back(changed(candidate, "--parallel.schedule=interleaved",
                          [](Config& x) { x.parallel.schedule = PipelineSchedule::interleaved; }));
  return all;
}

}  // namespace flatshard
