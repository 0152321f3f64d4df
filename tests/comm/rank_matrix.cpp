// rank_matrix MODE [--steps N] [--count N] [--seed N], alone or under mpirun. The default is 3 steps;
// --images, --experts and --starts have a count, 8 by default, and a seed, 1 by default. The modes:
//   --subset          trains a tiny model in settings that cover every pair of options; all settings of a
//                     subject must produce the same bits. Prints a hash for each subject and the differences.
//   --sample          enough of these settings for every value of an option and every strategy in every
//                     order
//   --nightly         the same as --subset, with every combination of the main options
//   --all-stages      the settings of --subset that can be divided, on 2 and 4 pipeline stages, each schedule
//                     in turn
//   --stages          enough of these for every value of an option and every strategy in every schedule
//   --images          models that read images, with stages, lanes and strategies drawn at random
//   --experts         the same of mixtures of experts, with ranks that divide the experts
//   --starts          runs on records, from folders and GGUF files, with tokens of earlier runs or without
//                     (random_starts.h)
//   --all-written     what runs in pipeline stages write, compared with one stage: a table (written_files.h)
//   --written         the same, with each subject in one schedule, in turn
//   --start           initial values with a different seed on every rank, with and without broadcast from
//                     rank 0
//   --losses          the loss after 8 steps of each strategy and reduction, on any number of ranks
//   --collectives     every verb of a communicator, on tensors of many sizes
//   --unmatched       a graph that only rank 0 launches, on GPUs with NCCL: the watchdog ends the ranks
//   --traffic         the bytes received in a step of each strategy, compared with the unit table
//   --bubble          the idle time of pipeline stages in each schedule, with stages that sleep
//   --clocks          measures the clock offsets of the ranks, with clocks shifted on purpose
//   --nonfinite       nonfinite gradients on each rank in turn, in every strategy: all ranks must skip the
//                     step
// The exit code is 1 when a check fails.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iomanip>
#include <iostream>
#include <map>
#include <set>

#include "comm/clock.h"
#include "comm/shard_policy.h"
#include "runtime/parallel.h"
#include "tests/comm/bubble.h"
#include "tests/comm/collectives.h"
#include "tests/comm/expert_trials.h"
#include "tests/comm/image_trials.h"
#include "tests/comm/matrix_run.h"
#include "tests/comm/random_starts.h"
#include "tests/comm/settings.h"
#include "tests/comm/written_files.h"

using namespace flatshard;
using namespace flatshard::test;

namespace {

std::vector<Trial> trials_of(const Settings& settings, const std::vector<Setting>& chosen) {
  std::vector<Trial> trials;
  for (const Setting& s : chosen)
    trials.push_back({settings.config(s), settings.order(s), settings.key(s), settings.name(s)});
  return trials;
}

// What `find` returns on rank 0, on all ranks: a search takes seconds of a processor.
template <class Find>
std::vector<Setting> shared(World& world, Find&& find) {
  std::string bytes;
  if (world.rank() == 0)
    for (const Setting& s : find()) bytes.append(s.value.begin(), s.value.end());
  bytes = world.all_gather_texts(bytes, "the settings").front();
  std::vector<Setting> settings(bytes.size() / kDimensions);
  for (size_t i = 0; i < bytes.size(); ++i)
    settings[i / kDimensions].value[i % kDimensions] = static_cast<uint8_t>(bytes[i]);
  return settings;
}

// Whether this is the first setting with a value of one of its options, or with its strategy in a schedule.
bool adds_to(std::set<std::string>& seen, const Setting& s, const std::string& schedule, size_t first = 0) {
  bool adds = seen.insert(str(schedule, ' ', s[Dimension::strategy])).second;
  for (size_t d = first; d < kDimensions; ++d) adds = seen.insert(str(d, ' ', s.value[d])).second || adds;
  return adds;
}

// More than four ranks wait for one another most of the time, so they train what subjects the other options
// happen to have.
std::vector<Setting> sample_of(const std::vector<Setting>& settings, int ranks) {
  static_assert(static_cast<size_t>(Dimension::subject) == 0);
  std::vector<Setting> sample;
  std::set<std::string> seen;
  for (const Setting& s : settings)
    if (adds_to(seen, s, str(s[Dimension::order]), ranks > 4 ? 1 : 0)) sample.push_back(s);
  return sample;
}

// Every other stream order waits for messages that no rank has sent yet.
std::vector<Trial> trials_of_stages(World& world, bool all) {
  const int ranks = world.size();
  std::vector<Trial> trials;
  for (const int stages : {2, 4}) {
    if (ranks % stages != 0) continue;
    const Settings settings(ranks / stages);
    std::set<std::string> seen;
    size_t turn = 0;
    for (const Setting& s : shared(world, [&] { return settings.covering(); })) {
      Trial trial{settings.config(s), StreamOrder::concurrent, settings.key(s), settings.name(s)};
      // Units that span the blocks cannot be divided.
      if (trial.config.parallel.wrap != WrapPolicy::block || !trial.config.parallel.replicate.empty())
        continue;
      // Reductions whose bits depend on the ranks.
      if (trial.config.parallel.reduction != Reduction::exact) continue;
      constexpr std::array kSchedules{PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe,
                                      PipelineSchedule::sequential, PipelineSchedule::interleaved};
      if (trial.config.model.family == "gpt2" &&
          trial.config.train.lane_size > trial.config.train.batch_size_per_device)
        continue;  // refused with tied embeddings
      trial.config.parallel.stages = stages;
      // Two chunks of each of 4 stages are more than the model has parts.
      const bool interleaves = stages == 2 && set_up(trial.config, ranks).batching.micro_steps % stages == 0;
      trial.config.parallel.schedule = kSchedules[turn++ % (interleaves ? 4 : 3)];
      if (!all && !adds_to(seen, s, name_of(trial.config.parallel.schedule))) continue;
      trial.name = str(stages, " stages ", trial.config.parallel.schedule, ", ", trial.name);
      trials.push_back(trial);
    }
  }
  return trials;
}

// Rank 0 compares; the others train.
bool compare(World& world, const std::vector<Trial>& trials, int steps) {
  struct Seen {
    std::string hash, first;
    int count = 0, different = 0;
  };
  std::map<std::string, Seen> seen;
  MatrixRun run(world);
  for (const Trial& trial : trials) {
    const std::string hash = run.fingerprint(trial.config, trial.order, steps);
    if (world.rank() != 0) continue;
    Seen& of_key = seen[trial.key];
    if (of_key.count++ == 0) of_key.hash = hash, of_key.first = trial.name;
    if (hash == of_key.hash) continue;
    ++of_key.different;
    std::cout << "DIFFERENT " << trial.key << ": " << trial.name << " gives " << hash << ", unlike "
              << of_key.first << std::endl;
  }
  bool equal = true;
  for (const auto& [key, result] : seen) {
    equal = equal && result.different == 0;
    std::cout << key << ": " << result.hash << ' ' << result.count << " settings";
    if (result.different > 0) std::cout << ", " << result.different << " of them differ";
    std::cout << '\n';
  }
  if (world.rank() == 0) std::cout << trials.size() << " settings of " << steps << " steps\n";
  return equal;
}

// Fifteen lanes divide among 1, 3 and 5 ranks.
void print_losses(World& world) {
  MatrixRun run(world);
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::zero1, Strategy::shard_grad_op, Strategy::full_shard})
    for (const Reduction reduction : {Reduction::exact, Reduction::sequential, Reduction::native}) {
      Config c = matrix_config("llama");
      c.precision.compute = Precision::fp32;
      c.train.total_batch_size = world.size() % 2 == 0 ? kMatrixSequences : 15;
      c.parallel.strategy = strategy;
      c.parallel.reduction = reduction;
      const double loss = run.final_loss(c, 8);
      if (world.rank() == 0)
        std::cout << "loss " << strategy << ' ' << reduction << ' ' << std::setprecision(12) << loss << '\n';
    }
}

// Runs a config, and compares the bytes that a rank receives with those of the unit table.
void check_traffic(World& world, MatrixRun& run, const Config& c, const std::string& name) {
  const auto [received, stated] = run.received_and_stated(c);
  if (world.rank() == 0)
    std::cout << "traffic " << name << ": gathered " << received.gathered << ", reduced " << received.reduced
              << ", norm " << received.norm << std::endl;
  check(received == stated, name, ": the unit table states ", stated.gathered, ", ", stated.reduced, " and ",
        stated.norm);
}

bool traffic_holds(World& world) {
  MatrixRun run(world);
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::zero1, Strategy::shard_grad_op, Strategy::full_shard, Strategy::hybrid})
    for (const bool offload : {false, true})
      for (const int of_host : {0, 2}) {
        Config c = matrix_config("llama");
        c.parallel.strategy = strategy;
        if (offload && !shard_policy(strategy).params) continue;  // there is nothing to offload
        if (strategy == Strategy::hybrid) c.parallel.group_size = std::max(1, world.size() / 2);
        c.parallel.offload = offload;
        c.parallel.host_ranks = of_host;
        check_traffic(world, run, c,
                      str(strategy, offload ? " offloaded" : "", of_host ? " hosts of 2" : ""));
      }
  for (int expert_ranks = 2; expert_ranks <= world.size(); expert_ranks *= 2) {
    Config c = expert_config("mixtral");
    c.parallel.expert_ranks = expert_ranks;
    check_traffic(world, run, c, str(expert_ranks, " expert ranks"));
  }
  return true;
}

// Every rank's clock is five seconds ahead of the previous rank's.
bool clocks_hold(World& world) {
  const double ahead = 5.0 * world.rank();
  const ClockOffset offset = measure_clock_offset(world, [&] { return steady_seconds() + ahead; });
  const bool held = std::abs(offset.seconds + ahead) <= offset.error && offset.error < 5;
  const double not_held = held ? 0 : 1;
  for (const double other : world.all_gather({&not_held, 1}))
    if (other != 0) return false;
  const ClockOffset here = clock_offset(world);  // all ranks are on one host
  if (world.rank() == 0) std::cout << "clocks hold on " << world.size() << " ranks\n";
  return here.seconds == 0 && here.error == 0;
}

// Every rank has a different seed. With sync_module_states, all shards must be those of rank 0's seed.
bool start_as_one(World& world) {
  MatrixRun run(world);
  bool held = true;
  int cases = 0;
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::zero1, Strategy::full_shard, Strategy::hybrid})
    for (const bool offload : {false, true}) {
      Config c = matrix_config("llama");
      c.trainable = {"*layers.1.*", "*norm*"};
      c.parallel.strategy = strategy;
      if (c.parallel.strategy == Strategy::hybrid) c.parallel.group_size = world.size() / 2;
      c.parallel.offload = offload;
      if (offload && !shard_policy(strategy).params) continue;
      const std::string expected = run.first_shards(c);
      c.run.seed += world.rank();
      const std::string apart = run.first_shards(c);
      c.parallel.sync_module_states = true;
      const std::string together = run.first_shards(c);
      held = held && together == expected && (apart != expected) == (world.rank() != 0);
      ++cases;
    }
  const double not_held = held ? 0 : 1;
  for (const double other : world.all_gather({&not_held, 1}, "trials")) held = held && other == 0;
  if (held && world.rank() == 0)
    std::cout << "all ranks start from rank 0's values in " << cases << " cases\n";
  return held;
}

bool skips_together(World& world) {
  MatrixRun run(world);
  bool all = true;
  int cases = 0;
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::zero1, Strategy::shard_grad_op, Strategy::full_shard, Strategy::hybrid})
    for (int bad = 0; bad < world.size(); ++bad) {
      Config c = matrix_config("llama");
      c.precision.compute = Precision::fp16;
      c.parallel.strategy = strategy;
      if (c.parallel.strategy == Strategy::hybrid) c.parallel.group_size = world.size() / 2;
      const bool held = run.all_skip_when(bad, c, StreamOrder::concurrent);
      if (!held && world.rank() == 0)
        std::cout << strategy << ": not all ranks skip the step when gradients of rank " << bad
                  << " are nonfinite\n";
      all = all && held;
      ++cases;
    }
  if (all && world.rank() == 0) std::cout << "all ranks skip together in " << cases << " cases\n";
  return all;
}

struct Options {
  std::string mode;
  int64_t steps = 3, count = 8, seed = 1;
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    int64_t* const number = word == "--steps"   ? &o.steps
                            : word == "--count" ? &o.count
                            : word == "--seed"  ? &o.seed
                                                : nullptr;
    if (number && i + 1 < argc) {
      *number = std::atoll(argv[++i]);
      check(*number > 0, word, " is \"", argv[i], "\", must be a positive number");
    } else {
      constexpr const char* kModes[] = {
          "--subset",      "--sample",  "--nightly", "--stages",      "--all-stages", "--images",
          "--experts",     "--starts",  "--written", "--all-written", "--start",      "--losses",
          "--collectives", "--traffic", "--bubble",  "--clocks",      "--nonfinite",  "--unmatched"};
      std::string modes;
      for (const char* mode : kModes) modes += str(modes.empty() ? "" : ", ", mode);
      check(o.mode.empty() && std::find(std::begin(kModes), std::end(kModes), word) != std::end(kModes), word,
            ": usage: rank_matrix MODE [--steps N] [--count N] [--seed N], where MODE is ", modes);
      o.mode = word;
    }
  }
  return o;
}

bool run_matrix(const Options& o, World& world) {
  set_thread_count(1);  // the ranks share a few cores, and the tensors are tiny
  const int steps = static_cast<int>(o.steps);
  world.limit_collectives(std::chrono::seconds(60));
  if (o.mode == "--written" || o.mode == "--all-written")
    return written_files_hold(world, o.mode == "--all-written", std::cout);
  if (o.mode == "--collectives") return collectives_hold(world, std::cout);
  if (o.mode == "--unmatched") return launch_unmatched_graph(world), false;
  if (o.mode == "--bubble") return print_bubbles(world, std::cout), true;
  if (o.mode == "--clocks") return clocks_hold(world);
  if (o.mode == "--nonfinite") return skips_together(world);
  if (o.mode == "--traffic") return traffic_holds(world);
  if (o.mode == "--start") return start_as_one(world);
  if (o.mode == "--losses") return print_losses(world), true;
  if (o.mode == "--stages" || o.mode == "--all-stages")
    return compare(world, trials_of_stages(world, o.mode == "--all-stages"), steps);
  if (o.mode == "--starts")
    return random_starts_hold(world, static_cast<uint64_t>(o.seed), o.count, std::cout);
  if (o.mode == "--images")
    return compare(world, image_trials(world.size(), static_cast<uint64_t>(o.seed), o.count), steps);
  if (o.mode == "--experts")
    return compare(world, expert_trials(world.size(), static_cast<uint64_t>(o.seed), o.count), steps);
  const Settings settings(world.size());
  const bool all = o.mode == "--nightly";
  std::vector<Setting> chosen = shared(world, [&] { return all ? settings.nightly() : settings.covering(); });
  if (o.mode == "--sample") chosen = sample_of(chosen, world.size());
  return compare(world, trials_of(settings, chosen), steps);
}

}  // namespace

int main(int argc, char** argv) {
  World world;
  try {
    return run_matrix(parse(argc, argv), world) ? 0 : 1;
  } catch (const std::exception& error) {
    world.end_all_ranks(error.what());
  }
}
