// The schedules of a pipeline, executed by a simulation with rendezvous messages.

#include "train/setup/pipeline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "model/model.h"
#include "tests/test.h"
#include "train/setup/device_map.h"

using namespace flatshard;

namespace {

constexpr PipelineSchedule kSchedules[] = {PipelineSchedule::one_f_one_b, PipelineSchedule::interleaved,
                                           PipelineSchedule::gpipe, PipelineSchedule::sequential};

// A pipeline of `stages` with blocks of one unit of work each.
Pipeline pipeline(PipelineSchedule schedule, int stages, bool tied, int64_t micro_steps, int64_t chunks = 2) {
  Arena tables("tables", Device::cpu());
  const Model model(resolved({.family = "llama",
                              .layers = 4 * stages * chunks,
                              .hidden = 8,
                              .heads = 2,
                              .ffn = 8,
                              .vocab = 16,
                              .tied = tied}),
                    tables);
  ParallelConfig config;
  config.stages = stages;
  config.schedule = stages == 1 ? PipelineSchedule::one_f_one_b : schedule;
  if (schedule == PipelineSchedule::interleaved && stages > 1) config.chunks = chunks;
  return pipeline_of(config, model, 8, micro_steps);
}

// Executes the actions of all stages; a forward pass takes 1, a backward pass 2, an embedding nothing. An
// action starts when its input is there. A message is sent when its buffer, one of two for each direction, is
// received. Returns the end, or nothing if the stages wait for one another.
class Simulation {
 public:
  Simulation(const Pipeline& pipeline, int64_t micro_steps, int first_trained)
      : pipeline_(pipeline), first_(first_trained) {
    for (int stage = 0; stage < pipeline.stages; ++stage)
      lists_.push_back(actions_of(pipeline, stage, micro_steps, first_trained));
    chunk_work_ =
        1.0 * pipeline.stages / static_cast<double>(pipeline.last_chunk() + (pipeline.embeds_apart ? 0 : 1));
  }

  std::optional<double> run() {
    std::vector<size_t>& at = at_ = std::vector<size_t>(lists_.size(), 0);
    std::vector<double> clock(lists_.size(), 0);
    for (bool progress = true; progress;) {
      progress = false;
      for (size_t s = 0; s < lists_.size(); ++s)
        for (; at[s] < lists_[s].size() && can_start(lists_[s], at[s]); ++at[s], progress = true)
          execute(lists_[s][at[s]], clock[s]);
    }
    for (size_t s = 0; s < lists_.size(); ++s)
      if (at[s] < lists_[s].size()) return {};
    return *std::max_element(clock.begin(), clock.end());
  }
  const std::vector<Action>& of(int stage) const { return lists_[static_cast<size_t>(stage)]; }

 private:
  using Key = std::tuple<bool, int, int64_t>;
  static Key key(const Action& a) { return {a.forward, a.chunk, a.micro}; }

  std::optional<Action> source(const Action& a) const {
    const int from = a.chunk + (a.forward ? -1 : 1);
    if (from < 0) return {};
    if (from > pipeline_.last_chunk()) return Action{true, a.chunk, a.micro};
    return Action{a.forward, from, a.micro};
  }
  bool sends(const Action& a) const {
    return a.forward ? a.chunk < pipeline_.last_chunk()
                     : pipeline_.chunks[static_cast<size_t>(a.chunk)].first > first_;
  }
  // The input is there, and the message before the last one in this direction has been received, i.e. the
  // receiving stage has reached the action before the one that consumes it.
  bool can_start(const std::vector<Action>& list, size_t at) const {
    const Action& a = list[at];
    if (const auto from = source(a); from && !ended_.contains(key(*from))) return false;
    if (!a.forward && !ended_.contains(key({true, a.chunk, a.micro}))) return false;
    if (!sends(a)) return true;
    int later = 0;
    const int at_once = a.forward ? pipeline_.outputs_at_once(a.chunk) : 2;
    const bool own_ring = a.forward && pipeline_.embeds_apart && a.chunk == 0;
    for (size_t i = at; i-- > 0;)
      if (list[i].forward == a.forward && sends(list[i]) && (!own_ring || list[i].chunk == 0) &&
          (own_ring || !a.forward || !pipeline_.embeds_apart || list[i].chunk != 0) && ++later == at_once) {
        const int to = list[i].chunk + (a.forward ? 1 : -1);
        return is_received({a.forward, to, list[i].micro});
      }
    return true;
  }
  // A stage receives the message of an action when it begins the action before.
  bool is_received(const Action& consumer) const {
    const auto stage = static_cast<size_t>(pipeline_.chunks[static_cast<size_t>(consumer.chunk)].stage);
    const auto place = std::find(lists_[stage].begin(), lists_[stage].end(), consumer);
    return at_[stage] + 1 >= static_cast<size_t>(place - lists_[stage].begin());
  }
  void execute(const Action& a, double& clock) {
    if (const auto from = source(a)) clock = std::max(clock, ended_.at(key(*from)));
    const bool embeds = pipeline_.embeds_apart && a.chunk == 0;
    clock += embeds ? 0 : (a.forward ? 1 : 2) * chunk_work_;
    ended_[key(a)] = clock;
  }

  const Pipeline& pipeline_;
  int first_;
  double chunk_work_;
  std::vector<std::vector<Action>> lists_;
  std::vector<size_t> at_;  // the next action of each stage
  std::map<Key, double> ended_;
};

template <class Visit>
void each_case(Visit&& visit) {
  for (const PipelineSchedule schedule : kSchedules)
    for (const int stages : {1, 2, 3, 4, 7})
      for (const int64_t rounds : {1, 2, 5})
        for (const bool tied : {false, true})
          for (const int64_t more : {0, 1, 2}) {
            const int64_t micro_steps =
                stages * rounds + (schedule == PipelineSchedule::interleaved ? 0 : more);
            CAPTURE(schedule);
            CAPTURE(stages);
            CAPTURE(micro_steps);
            CAPTURE(tied);
            const Pipeline p = pipeline(schedule, stages, tied, micro_steps);
            visit(p, schedule, micro_steps);
          }
}

}  // namespace

TEST_CASE("every schedule passes each micro-batch through all chunks, backward in ascending order") {
  each_case([](const Pipeline& p, PipelineSchedule, int64_t micro_steps) {
    for (const int first_trained : {0, 1, p.chunks.back().first}) {
      Simulation simulation(p, micro_steps, first_trained);
      CHECK(simulation.run().has_value());
      std::map<int, int64_t> forward, backward;
      for (int stage = 0; stage < p.stages; ++stage)
        for (const Action& a : simulation.of(stage)) {
          CHECK(p.chunks[static_cast<size_t>(a.chunk)].stage == stage);
          CHECK(a.micro == (a.forward ? forward : backward)[a.chunk]++);
        }
      for (int chunk = 0; chunk <= p.last_chunk(); ++chunk) {
        CHECK(forward[chunk] == micro_steps);
        CHECK(backward[chunk] == (p.trains(chunk, first_trained) ? micro_steps : 0));
      }
    }
  });
}

TEST_CASE("with 1f1b, stage s of S has at most S - s micro-batches in flight") {
  each_case([](const Pipeline& p, PipelineSchedule schedule, int64_t micro_steps) {
    for (int chunk = p.embeds_apart ? 1 : 0; chunk <= p.last_chunk(); ++chunk) {
      const int stage = p.chunks[static_cast<size_t>(chunk)].stage;
      const int most = in_flight(actions_of(p, stage, micro_steps, 0), chunk);
      if (p.stages == 1 || schedule == PipelineSchedule::sequential)
        CHECK(most == 1);
      else if (schedule == PipelineSchedule::one_f_one_b)
        CHECK(most == std::min<int64_t>(p.stages - stage, micro_steps));
      else if (schedule == PipelineSchedule::gpipe)
        CHECK(most == micro_steps);
      else
        CHECK(most <= 2 * p.stages);
    }
  });
}

TEST_CASE("gradients of a tied embedding are open for at most S micro-batches") {
  each_case([](const Pipeline& p, PipelineSchedule schedule, int64_t micro_steps) {
    if (!p.embeds_apart) return;
    const int open = partly_done(actions_of(p, p.stages - 1, micro_steps, 0), {0, p.last_chunk()});
    CHECK(open <= (schedule == PipelineSchedule::interleaved ? 3 * p.stages : p.stages));
  });
}

TEST_CASE("the stages are idle for as long as the formula of the bubble says") {
  each_case([](const Pipeline& p, PipelineSchedule schedule, int64_t micro_steps) {
    if (p.embeds_apart && schedule == PipelineSchedule::interleaved)
      return;  // its embedding waits for whole rounds
    const double busy = 3.0 * static_cast<double>(micro_steps);
    const double end = Simulation(p, micro_steps, 0).run().value_or(0);
    CHECK(1 - busy / end == doctest::Approx(bubble_of(p, micro_steps)));
  });
}

TEST_CASE("auto divides work evenly, and balanced limits are those of Hugging Face Accelerate") {
  const std::vector<double> work{0, 4, 4, 4, 4, 4, 4, 8};
  CHECK(even_ends(work, 2) == std::vector{5, 8});
  CHECK(even_ends(work, 4) == std::vector{3, 5, 7, 8});
  CHECK(even_ends(std::vector<double>{1, 1, 1}, 3) == std::vector{1, 2, 3});
  // 100 + 10 x 40 + 100 = 600 bytes over 2: 300 + 1.25 x 100 = 425.
  std::vector<int64_t> sizes(12, 40);
  sizes.front() = sizes.back() = 100;
  CHECK(balanced_limits(sizes, 20, 2, false) == std::vector<int64_t>{425});
  CHECK(filled_ends(sizes, balanced_limits(sizes, 20, 2, false)) == std::vector{9, 12});
  // Over 4: 150 + 125 = 275.
  CHECK(filled_ends(sizes, balanced_limits(sizes, 20, 4, false)) == std::vector{5, 11, 12, 12});
  // Without device 0, over 3: 200 + 125 = 325; device 0 takes max(0, 600 - 3 x 325) = 0.
  CHECK(balanced_limits(sizes, 20, 4, true) == std::vector<int64_t>{0, 325, 325});
}

namespace {

// The pipeline of a Llama with 32 blocks.
Pipeline divided(const DeviceMap& map, int stages, const ModelConfig& llama, int64_t seq_len) {
  Arena tables("tables", Device::cpu());
  ParallelConfig config;
  config.stages = stages;
  config.device_map = map;
  return pipeline_of(config, Model(resolved(llama), tables), seq_len, 8);
}

Pipeline mapped(const std::map<std::string, double>& table, int stages, bool tied = false) {
  return divided(
      table, stages,
      {.family = "llama", .layers = 32, .hidden = 8, .heads = 2, .ffn = 8, .vocab = 16, .tied = tied}, 8);
}

// Blocks [first, last] on a stage.
void put(std::map<std::string, double>& table, int first, int last, int stage) {
  for (int i = first; i <= last; ++i) table[str("model.layers.", i)] = stage;
}

std::vector<int> ends(const Pipeline& pipeline) {
  std::vector<int> all;
  for (const Chunk& chunk : pipeline.chunks) all.push_back(chunk.end);
  return all;
}

}  // namespace

// By hand, in bytes: the embedding 262,144,000, a block 404,766,720, head and norm 262,152,192, together
// 13,476,831,232. A block is 1,264,582,656 operations per token at 2,048 tokens, the head 786,432,000.
TEST_CASE("each kind of device map divides the shape of Llama-2-7B as computed by hand") {
  const ModelConfig llama{
      .family = "llama", .layers = 32, .hidden = 4096, .heads = 32, .ffn = 11008, .vocab = 32000};
  const auto ends_of = [&](const DeviceMap& map, int stages) {
    return ends(divided(map, stages, llama, 2048));
  };
  // The head is 0.62 blocks: 16 and 16.62 blocks of work, or 8, 8, 8 and 8.62.
  CHECK(ends_of(DeviceMapKind::automatic, 2) == std::vector{17, 34});
  CHECK(ends_of(DeviceMapKind::automatic, 4) == std::vector{9, 17, 25, 34});
  // 13,476,831,232 / 2 + 1.25 x 404,766,720 = 7,244,374,016: the embedding and 17.25 blocks.
  CHECK(ends_of(DeviceMapKind::balanced, 2) == std::vector{18, 34});
  // / 4: 3,875,166,208: the embedding and 8.93 blocks, then 9.57 blocks each.
  CHECK(ends_of(DeviceMapKind::balanced, 4) == std::vector{9, 18, 27, 34});
  // / 3: 4,998,235,477, which leaves nothing for stage 0 but its one part: then 11.70 blocks beside the
  // embedding, and 12.35 blocks.
  CHECK(ends_of(DeviceMapKind::balanced_low_0, 4) == std::vector{1, 12, 24, 34});
  // The embedding and 9.23 blocks, then 9.88 blocks each.
  CHECK(ends_of("sequential:4GB", 4) == std::vector{10, 19, 28, 34});
  // All of it fits on stage 0, and the others have one part each.
  CHECK(ends_of("sequential:20GB", 4) == std::vector{31, 32, 33, 34});
  CHECK(test::error_of([&] { ends_of("sequential", 2); }).find("must be auto, balanced") !=
        std::string::npos);
  CHECK(test::error_of([&] {
          ends_of("sequential:4 apples", 2);
        }).find("is \"4 apples\", must be a positive") != std::string::npos);
}

TEST_CASE("a table of prefixes places layers, and a prefix ends at a dot") {
  std::map<std::string, double> two{{"model.embed_tokens", 0}, {"model.norm", 1}, {"lm_head", 1}};
  put(two, 0, 12, 0), put(two, 13, 31, 1);
  CHECK(ends(mapped(two, 2)) == std::vector{14, 34});
  std::map<std::string, double> four{{"model.embed_tokens", 0}, {"model.norm", 3}, {"lm_head", 3}};
  put(four, 0, 4, 0), put(four, 5, 13, 1), put(four, 14, 22, 2), put(four, 23, 31, 3);
  CHECK(ends(mapped(four, 4)) == std::vector{6, 15, 24, 34});
  // The longest prefix decides.
  CHECK(ends(mapped({{"model", 0}, {"model.layers.31", 1}, {"model.norm", 1}, {"lm_head", 1}}, 2)) ==
        std::vector{32, 34});
}

TEST_CASE("a table that is incomplete, unknown, out of order or splits a part is refused") {
  const auto refused = [](const std::map<std::string, double>& table, bool tied, const std::string& because) {
    const std::string error = test::error_of([&] { mapped(table, 2, tied); });
    CHECK_MESSAGE(error.find(because) != error.npos, error);
  };
  refused({{"model", 0}}, false, "no prefix covers lm_head.weight");
  refused({{"model", 0}, {"lm_head", 1}, {"model.norm", 1}, {"model.layer", 1}}, false,
          "\"model.layer\" is a prefix of no parameter");
  refused({{"model", 1}, {"lm_head", 1}, {"model.layers.3", 0}}, false, "must follow the order of the model");
  refused({{"model", 0}, {"lm_head", 1}}, false, "must each be on one stage");
  refused({{"model", 0}, {"model.layers.1.mlp", 1}, {"lm_head", 1}}, false, "must each be on one stage");
  refused({{"model", 0}, {"model.norm", 1}}, true, "must each be on one stage");
  refused({{"model", 0}, {"lm_head", 2}}, false, "must be a whole number below parallel.stages = 2");
  refused({{"model", 0}, {"lm_head", 0}}, false, "gives range 1 of 2 no layers");
}
