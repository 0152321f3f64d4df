#include "tests/comm/expert_trials.h"

#include "comm/optimizer_kinds.h"
#include "tests/comm/drawn_trials.h"

namespace flatshard::test {
namespace {

// All that decides the bits.
Config subject(Dice& dice, int64_t number) {
  const std::vector<std::string> families{"mixtral",    "qwen2_moe", "glm4_moe",
                                          "granitemoe", "olmoe",     "gpt_oss"};
  Config c = expert_config(families[static_cast<size_t>(number) % families.size()]);
  c.model.experts_per_token = dice.of<int64_t>({1, 2, 3});
  c.precision.compute = dice.one_in(2) ? Precision::bf16 : Precision::fp32;
  if (c.model.family != "glm4_moe") {
    c.train.router_aux_loss = dice.of<double>({0, 0.1});
    c.train.router_z_loss = dice.of<double>({0, 0.1});
  }
  c.data.packing = dice.one_in(2) ? Packing::none : Packing::documents;  // with padding, or without
  c.train.lane_size = dice.of<int64_t>({1, 1, 2});
  c.train.batch_size_per_device = dice.one_in(3) ? 1 : c.train.lane_size;  // else a lane spans two steps
  if (dice.one_in(3)) c.optimizer.kind = *optimizer_named("adamw8bit");
  if (dice.one_in(3)) c.parallel.wrap = WrapPolicy::attention_mlp;  // the norm is summed by unit
  return c;
}

// What changes no bits. Returns its name.
std::string divide(Config& c, Dice& dice, int ranks) {
  ParallelConfig& p = c.parallel;
  p.stages = ranks > 2 && p.wrap == WrapPolicy::block && dice.one_in(4) ? 2 : 1;
  const int64_t data_ranks = ranks / p.stages, lane = c.train.lane_size;
  std::vector<int64_t> at_once{1};
  for (const int64_t n : {2, 4})
    if (c.train.batch_size_per_device == lane && kMatrixSequences % (n * lane * data_ranks) == 0)
      at_once.push_back(n);
  const int64_t lanes = dice.of(at_once);
  c.train.batch_size_per_device *= lanes;
  c.train.recompute = dice.of<Recompute>(
      {Recompute::none, Recompute::selective, Recompute::full, Recompute::except_attention});
  p.strategy = data_ranks > 2 && dice.one_in(3) ? Strategy::hybrid : Strategy::full_shard;
  if (p.strategy == Strategy::hybrid) p.group_size = data_ranks / 2;
  const int64_t group = p.strategy == Strategy::hybrid ? p.group_size : data_ranks;
  std::vector<int64_t> parts;
  for (int64_t n = 2; n <= group; n *= 2) parts.push_back(n);
  if (!parts.empty()) p.expert_ranks = dice.of(parts);
  p.offload = dice.one_in(3);
  p.keep_root_gathered = dice.one_in(2);
  p.backward_prefetch =
      dice.of<BackwardPrefetch>({BackwardPrefetch::none, BackwardPrefetch::pre, BackwardPrefetch::post});
  p.depth = dice.of<int64_t>({1, 2});
  return str(p.expert_ranks, " expert ranks, ", p.stages, p.stages > 1 ? " stages, " : " stage, ", lanes,
             " lanes at a time, recompute ", c.train.recompute, ", ", p.strategy,
             p.offload ? ", offloaded" : "", ", depth ", p.depth);
}

}  // namespace

Config expert_config(const std::string& family) {
  Config c = matrix_config("llama");
  c.model = {.family = family,
             .layers = 3,
             .hidden = 64,
             .heads = 4,
             .kv_heads = 2,
             .ffn = 64,
             .vocab = kMatrixVocab,
             .experts = 8,
             .experts_per_token = 2};
  if (family == "olmoe") c.model.kv_heads = 4;
  if (family == "gpt_oss") c.model.window = 5;
  if (family == "qwen2_moe") c.model.expert_ffn = 64, c.model.shared_ffn = 48;
  if (family == "glm4_moe") c.model.expert_ffn = 64, c.model.shared_ffn = 64, c.model.dense_blocks = {0};
  return c;
}

std::vector<Trial> expert_trials(int ranks, uint64_t seed, int64_t count) {
  std::vector<Trial> trials;
  for (int64_t number = 0; number < count; ++number) {
    Dice of_subject(seed, "experts", number), of_division(seed, str("experts on ", ranks), number);
    const Config c = subject(of_subject, number);
    const std::string key = str("experts ", seed, '.', number, ' ', c.model.family, ' ', c.precision.compute,
                                ' ', c.optimizer.kind.row->name, ' ', c.model.experts_per_token,
                                " of 8 experts in units of ", c.parallel.wrap);
    add_drawn(trials, c, key, ranks, of_division,
              [&](Config& config, Dice& dice) { return divide(config, dice, ranks); });
  }
  return trials;
}

}  // namespace flatshard::test
