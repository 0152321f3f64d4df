#include "tests/comm/image_trials.h"

#include "tests/comm/drawn_trials.h"
#include "tests/train/image_workshop.h"

namespace flatshard::test {
namespace {

constexpr int64_t kSequences = 16;
const std::vector<std::string> kAll{"*"};

// All that decides the bits.
Config subject(Dice& dice, int64_t number) {
  const std::vector<std::string> families{"idefics2", "idefics3", "qwen2_vl", "qwen2_5_vl"};
  Config c = matrix_config("llama");
  c.model = model_for_images(families[static_cast<size_t>(number) % families.size()]);
  c.data.seq_len = dice.of<int64_t>({14, 20, 33});
  c.data.max_patches = dice.of<int64_t>({40, 64, 120});
  c.data.packing = dice.one_in(2) ? Packing::none : Packing::best_fit;
  c.precision.compute = dice.one_in(3) ? Precision::bf16 : Precision::fp32;
  c.train.total_batch_size = kSequences;
  c.train.lane_size = dice.of<int64_t>({1, 1, 2});
  c.train.batch_size_per_device = c.train.lane_size;
  c.trainable =
      dice.of<std::vector<std::string>>({kAll, kAll, {"*layers.1.*", "lm_head.weight"}, {"*norm*"}});
  if (c.trainable == kAll && dice.one_in(4))
    c.lora = {.rank = 2, .dropout = 0.1, .targets = ".*(q_proj|v_proj|qkv|fc1|gate_proj)"};
  return c;
}

// What changes no bits. Returns its name.
std::string divide(Config& c, Dice& dice, int ranks) {
  ParallelConfig& p = c.parallel;
  std::vector<int> stages{1};
  for (const int n : {2, 4})
    if (ranks % n == 0) stages.insert(stages.end(), 2, n);
  p.stages = dice.of(stages);
  const int64_t data_ranks = ranks / p.stages;
  std::vector<int64_t> lanes;
  for (const int64_t n : {1, 2, 4})
    if (kSequences % (n * c.train.lane_size * data_ranks) == 0) lanes.push_back(n);
  const int64_t at_once = dice.of(lanes);
  c.train.batch_size_per_device = at_once * c.train.lane_size;
  c.train.recompute = dice.of<Recompute>({Recompute::none, Recompute::selective, Recompute::full});
  p.strategy = dice.of<Strategy>({Strategy::full_shard, Strategy::no_shard, Strategy::shard_grad_op});
  p.offload = p.strategy == Strategy::full_shard && dice.one_in(3);
  if (p.stages > 1) {
    p.schedule = dice.of<PipelineSchedule>(
        {PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe, PipelineSchedule::sequential});
    // Two chunks of each of 4 stages are more than the model has parts.
    const int64_t micro_steps = kSequences / (c.train.batch_size_per_device * data_ranks);
    if (p.stages == 2 && micro_steps % 2 == 0 && dice.one_in(3)) p.schedule = PipelineSchedule::interleaved;
  }
  return str(p.stages, p.stages > 1 ? str(" stages ", p.schedule) : " stage", ", ", at_once,
             " lanes at a time, recompute ", c.train.recompute, ", ", p.strategy,
             p.offload ? ", offloaded" : "");
}

}  // namespace

std::vector<Trial> image_trials(int ranks, uint64_t seed, int64_t count) {
  std::vector<Trial> trials;
  for (int64_t number = 0; number < count; ++number) {
    Dice of_subject(seed, "subject", number), of_division(seed, str("division ", ranks), number);
    const Config c = subject(of_subject, number);
    const std::string key =
        str("images ", seed, '.', number, ' ', c.model.family, ' ', c.precision.compute, ' ', c.data.packing,
            ' ', c.train.lane_size, 'x', c.data.seq_len, " of ", c.data.max_patches, " patches",
            c.trainable == kAll ? "" : " frozen", c.lora.rank > 0 ? " lora" : "");
    add_drawn(trials, c, key, ranks, of_division,
              [&](Config& config, Dice& dice) { return divide(config, dice, ranks); });
  }
  return trials;
}

}  // namespace flatshard::test
