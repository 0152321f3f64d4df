#include "tests/comm/matrix_run.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <filesystem>
#include <unistd.h>

#include "runtime/memory.h"
#include "runtime/rng.h"
#include "runtime/sha256.h"
#include "tests/comm/settings.h"
#include "tests/train/image_workshop.h"
#include "train/step/weights.h"

namespace flatshard::test {
namespace {

constexpr int64_t kMostEvaluated = 16;  // sequences
constexpr CommitOptions kPoisoned{.poison = true};

// A file per rank, which is deleted once it is mapped.
std::string corpus_path() {
  return (std::filesystem::temp_directory_path() / str("rank_matrix_", getpid(), ".tok")).string();
}

// Writes documents of various lengths.
std::string write_corpus() {
  const std::string path = corpus_path();
  TokenWriter writer(path, kMatrixVocab);
  const RandomStream random(5, "corpus");
  int64_t at = 0;
  for (int64_t document = 0; document < 40; ++document) {
    std::vector<int32_t> tokens(static_cast<size_t>(7 + 5 * (document % 6)));
    for (int32_t& t : tokens) t = static_cast<int32_t>(random.bits(at++) % kMatrixVocab);
    writer.add_document(tokens);
  }
  writer.finish();
  return path;
}

PackingOptions packing_of(const RunSetup& setup) {
  return {.packing = setup.config.data.packing, .max_patches = setup.max_patches};
}

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

double loss_scale(const RunSetup& setup) { return setup.compute == DType::f16 ? 1024 : 1; }

void add_to(Sha256& hash, const std::vector<double>& values) {
  hash.add(values.data(), values.size() * sizeof(double));
}

// The setup of a run in which even the shortest shards are paged.
RunSetup set_up_paged(const Config& config, int ranks) {
  RunSetup setup = set_up(config, ranks);
  if (setup.units.page_state_from) setup.units.page_state_from = 1;
  return setup;
}

// Checks that the persistent state of a rank is exactly its shard: parameters in the compute dtype, unsharded
// or sharded, and for trainable parameters sharded masters and state, besides the slots of paged state.
void check_share(const TrainingRuntime& runtime, const std::vector<ShardedUnit>& units,
                 const RunSetup& setup) {
  const int64_t ranks = setup.groups.size, f32 = size_of(DType::f32);
  int64_t bytes = 0, slots[2] = {0, 0};
  size_t turn = 0;
  for (const ShardedUnit& unit : units) {
    int64_t trained = 0, frozen = 0;
    for (const ParamSpec& spec : unit.params().specs()) {
      const int64_t size = spec.shape.size(), width = size_of(spec.dtype.value_or(setup.compute));
      int64_t& end = spec.trainable ? trained : frozen;
      if (!spec.joined) end = round_up(end, FlatLayout::kAlignment);
      end += spec.trainable ? size : size * width;
    }
    const auto shard = [&](int64_t size) {
      return round_up(size, ranks * setup.groups.count() * FlatLayout::kShardMultiple) / ranks;
    };
    const int64_t parts = setup.units.policy.params && !unit.role().replicated ? 1 : ranks;
    bytes += parts * (shard(trained) * size_of(setup.compute) + shard(frozen));
    int64_t paged = 0;
    for (const StateSpec& state : unit.optimizer().states()) {
      const int64_t of_state = shard(trained) / state.block * size_of(state.dtype);
      bytes += round_up(of_state, Arena::kAlignment);
      if (state.pages) paged += of_state;
    }
    bytes += setup.compute == DType::f32 ? 0 : shard(trained) * f32;
    if (!setup.units.page_state_from || trained == 0) continue;
    slots[turn] = std::max(slots[turn], paged);
    turn = 1 - turn;
  }
  bytes += slots[0] + slots[1];
  const MemoryPlan& memory = runtime.memory();
  const int64_t held = memory.parameters.used() + memory.optimizer.used() + memory.paged.used();
  check(held == bytes, "a rank holds ", held, " bytes of the state, must be ", bytes);
}

// Checks that a step has sent between stages what the plan states, and that ranks have received as much.
void check_messages(const CollectiveLog& log, const RunPlan& plan, World& world) {
  std::array<double, 2> bytes{};
  for (const bool sent : {false, true})
    bytes[sent] = static_cast<double>(sum_of(log, [&](const Collective& c) {
                                        return c.verb == std::string(sent ? "send" : "receive");
                                      }).bytes);
  check(bytes[1] == static_cast<double>(plan.sent_bytes), "a rank sends ", bytes[1],
        " bytes to other stages, the plan has ", plan.sent_bytes);
  std::array<double, 2> sums{};
  const std::vector<double> all = world.all_gather(bytes);
  for (size_t i = 0; i < all.size(); ++i) sums[i % 2] += all[i];
  check(sums[0] == sums[1], "stages receive ", sums[0], " bytes, and send ", sums[1]);
}

}  // namespace

MatrixRun::MatrixRun(World& world) : world_(world), corpus_(write_corpus()) {
  std::filesystem::remove(corpus_.path());
}

const TokenFile& MatrixRun::corpus_for(const RunSetup& setup) {
  if (!setup.model.vision) return corpus_;
  const std::string& family = setup.model.family;
  if (const auto found = image_corpora_.find(family); found != image_corpora_.end()) return found->second;
  const std::string path = corpus_path();
  write_documents_with_images(path, family);
  const auto [written, _] = image_corpora_.emplace(family, path);
  std::filesystem::remove(path);
  return written->second;
}

Data MatrixRun::data(const RunSetup& setup) {
  return Data(corpus_for(setup), {.seq_len = setup.seq_len(),
                                  .lane_sequences = setup.batching.lane_sequences,
                                  .total_sequences = setup.batching.total_sequences,
                                  .packing = packing_of(setup)});
}

MatrixRun::Outcome MatrixRun::step(TrainingRuntime& runtime, const RunSetup& setup, const Data& data,
                                   int number) {
  const StepResult r = runtime.engine().step(data, {.data_step = number,
                                                    .update = number + 1,
                                                    .lr = setup.config.optimizer.lr,
                                                    .loss_scale = loss_scale(setup),
                                                    .targets = data.target_count(number)});
  check(r.finite, "step ", number, ": gradients are not finite, norm ", r.grad_norm);
  const std::vector<double> all = world_.all_gather(r.lane_losses);
  const size_t mine = r.lane_losses.size();
  Outcome outcome{std::vector<double>(mine * static_cast<size_t>(setup.groups.ranks)), r.grad_norm};
  for (size_t i = 0; i < all.size(); ++i) {
    const int64_t local = static_cast<int64_t>(i % mine), lanes = setup.batching.lanes;
    const int64_t lane = lane_part_of(setup.units, setup.groups, setup.data_rank(static_cast<int>(i / mine)),
                                      local / lanes, local % lanes);
    outcome.losses[static_cast<size_t>(lane)] += all[i] / loss_scale(setup);  // 0 but in the last stage
  }
  return outcome;
}

// The losses of the evaluated sequences, in order.
std::vector<double> MatrixRun::evaluate(TrainingRuntime& runtime, const RunSetup& setup) {
  const int ranks = setup.groups.ranks;
  const Data data(
      corpus_for(setup),
      {.seq_len = setup.seq_len(), .total_sequences = ranks, .packing = packing_of(setup), .shuffle = false});
  // Of an epoch, in as many batches on any number of ranks.
  const auto count = std::bit_floor(static_cast<uint64_t>(std::min(kMostEvaluated, data.sequence_count())));
  std::vector<double> losses(count, 0);
  for (int batch = 0; batch < static_cast<int>(count) / ranks; ++batch) {
    const std::vector<SequenceLoss> mine = runtime.engine().evaluate(data, batch);
    const std::vector<double> all = world_.all_gather(std::vector<double>{mine.front().sum});
    for (int rank = 0; rank < world_.size(); ++rank)  // 0 but in the last stage
      losses[static_cast<size_t>(batch * ranks + setup.data_rank(rank))] += all[static_cast<size_t>(rank)];
  }
  return losses;
}

std::string MatrixRun::fingerprint(const Config& config, StreamOrder order, int steps) {
  RunSetup setup = set_up_paged(config, world_.size());
  setup.units.poison = true;
  const Data batches = data(setup);
  const int64_t live_before = memory_counters().live_bytes;
  TrainingRuntime runtime(setup, world_, {.order = order, .commit = kPoisoned});
  runtime.engine().initialize();
  const int64_t taken = memory_counters().live_bytes - live_before;
  check(taken == runtime.plan().memory_bytes, "a rank allocates ", taken, " bytes, the plan has ",
        runtime.plan().memory_bytes);
  check_share(runtime, runtime.engine().units(), setup);
  Sha256 hash;
  CollectiveLog log;
  runtime.log_to(&log);
  for (int number = 0; number < steps; ++number) {
    const Outcome outcome = step(runtime, setup, batches, number);
    runtime.log_to(nullptr);
    if (number == 0) check_messages(log, runtime.plan(), world_);
    add_to(hash, outcome.losses);
    add_to(hash, {outcome.norm});
    if (number == 0) add_to(hash, evaluate(runtime, setup));
  }
  const std::string weights = weights_hash(runtime.engine(), world_);
  hash.add(weights.data(), weights.size());
  return world_.rank() == 0 ? hash.hex() : "";
}

std::string MatrixRun::first_shards(const Config& config) {
  const RunSetup setup = set_up(config, world_.size());
  TrainingRuntime runtime(setup, world_, {.commit = kPoisoned});
  runtime.engine().initialize();
  Sha256 hash;
  for (const ShardedUnit& unit : runtime.engine().units())
    for (const Tensor& t : {unit.shard().p, unit.shard().copy, unit.frozen_shard()})
      hash.add(t.data, static_cast<size_t>(t.bytes()));
  return hash.hex();
}

double MatrixRun::final_loss(const Config& config, int steps) {
  RunSetup setup = set_up(config, world_.size());
  setup.units.poison = true;
  const Data batches = data(setup);
  TrainingRuntime runtime(setup, world_, {.commit = kPoisoned});
  runtime.engine().initialize();
  double loss = NAN;
  for (int number = 0; number < steps; ++number) {
    loss = 0;
    for (const double lane : step(runtime, setup, batches, number).losses) loss += lane;
  }
  return loss;
}

std::pair<MatrixRun::Received, MatrixRun::Received> MatrixRun::received_and_stated(const Config& config) {
  const RunSetup setup = set_up(config, world_.size());
  const Data batches = data(setup);
  TrainingRuntime runtime(setup, world_);
  runtime.engine().initialize();
  step(runtime, setup, batches, 0);
  CollectiveLog log;
  runtime.log_to(&log);
  step(runtime, setup, batches, 1);
  runtime.log_to(nullptr);
  // In a collective over n ranks, each rank receives (n - 1) / n of the tensor. The table does not
  // count the tokens of experts.
  const auto received = [&](const std::string& communicator, int ranks) {
    return sum_of(log,
                  [&](const Collective& c) {
                    return c.communicator == communicator && c.label != std::string_view("experts") &&
                           c.label != std::string_view("rows of experts");
                  })
               .bytes /
           ranks * (ranks - 1);
  };
  const bool divides = setup.expert_ranks > 1;
  const auto received_by = [&](const std::string& name, const Levels& levels) {
    const std::string between = name + (divides ? " between expert groups" : " between hosts");
    const Bytes bytes{received(name, levels.inside), received(between, levels.between())};
    return divides ? Bytes{bytes.all(), 0} : bytes;  // expert groups are on one host
  };
  const RankLevels levels = setup.levels_of(world_.rank());
  const bool two = levels.group.two() || levels.replicas.two();
  const auto stated = [&](const Bytes& bytes) { return two ? bytes : Bytes{bytes.all(), 0}; };
  Bytes reduced = received_by("reduce", levels.group);
  reduced += received_by("replicas", levels.replicas);
  const UnitTable& units = runtime.plan().units;
  return {{received_by("gather", levels.group), reduced, received_by("compute", levels.group)},
          {stated(units.all.traffic.gathered), stated(units.all.traffic.reduced), stated(units.norm)}};
}

}  // namespace flatshard::test
