// resume_matrix --write FOLDER | --resume FOLDER HASH | --resume-every FOLDER HASH, alone or under mpirun.
//   --write          trains 20 steps across two ends of an epoch in each strategy, with a checkpoint of every
//                    step, in FOLDER/RANKS-STRATEGY; prints the hash of the weights at the end
//   --resume         resumes from every run written there, each time from a different step; the final weights
//                    must have this hash. The strategies take turns: on 1, 2 and 4 ranks each run is resumed
//                    under each of the three
//   --resume-every   resumes under each strategy and from every step
// The first run creates FOLDER. The exit code is 1 if a hash differs.

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <utility>

#include "runtime/log.h"
#include "tests/process.h"
#include "tests/workshop.h"
#include "train/run/trainer.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

constexpr int kSteps = 20;
constexpr const char* kStrategies[] = {"no_shard", "shard_grad_op", "full_shard"};

// Trains in the current folder; the hash of the weights, on rank 0.
std::string train(World& world, const std::string& strategy, const std::vector<std::string>& more) {
  std::vector<std::string> overrides{str("train.steps=", kSteps), "run.threads=1", "log.every=1000",
                                     "parallel.bandwidth_gbps=1", "parallel.strategy=" + strategy};
  overrides.insert(overrides.end(), more.begin(), more.end());
  std::ostringstream out;
  ResolvedRun run = resolve(read_config({.path = "config.toml", .overrides = overrides}), world);
  run.loaded.overwrite = !run.loaded.config.run.resume.ends_with("latest");
  run_training(std::move(run), world, {.out = out});
  return test::after(out.str(), "\nweights ");
}

bool same_on_all(World& world, bool here) {
  const double different = here ? 0 : 1;
  for (const double other : world.all_gather({&different, 1}, "trials"))
    if (other != 0) return false;
  return true;
}

bool write(World& world) {
  std::string first;
  bool equal = true;
  for (const std::string strategy : kStrategies) {
    const std::string hash =
        train(world, strategy, {str("run.dir=", world.size(), '-', strategy), "checkpoint.save_every=1"});
    if (first.empty()) first = hash;
    equal = equal && hash == first;
  }
  if (world.rank() == 0) std::cout << "weights " << first << std::endl;
  return same_on_all(world, equal);
}

bool resume(World& world, const std::string& hash, bool every) {
  std::vector<std::string> writers;
  for (const auto& entry : fs::directory_iterator("."))
    if (entry.is_directory() && fs::exists(entry.path() / "latest"))
      writers.push_back(entry.path().filename().string());
  std::sort(writers.begin(), writers.end());
  int runs = 0, different = 0;
  const size_t turn = static_cast<size_t>(std::countr_zero(static_cast<unsigned>(world.size())));
  for (size_t i = 0; i < writers.size(); ++i)
    for (size_t j = 0; j < std::size(kStrategies); ++j) {
      if (!every && j != (i + i / 3 + turn) % 3) continue;
      const std::string &writer = writers[i], strategy = kStrategies[j];
      for (int split = every ? 1 : 1 + (7 * runs + 5 * world.size()) % (kSteps - 1); split < kSteps;
           split += every ? 1 : kSteps) {
        world.barrier("the last run's folder");
        const std::string found =
            train(world, strategy,
                  {"run.dir=resumed", str("run.resume=", writer, "/step-", split),
                   split % 2 ? "parallel.backward_prefetch=none" : "train.recompute=true"});
        ++runs;
        if (world.rank() != 0 || found == hash) continue;
        ++different;
        std::cout << "DIFFERENT " << writer << " from step " << split << " on as " << world.size() << '-'
                  << strategy << ": " << found << std::endl;
      }
    }
  if (world.rank() == 0)
    std::cout << runs << " runs went on, from " << writers.size() << " that wrote; " << different << " differ"
              << std::endl;
  return same_on_all(world, runs > 0 && different == 0);
}

bool run(const std::vector<std::string>& words, World& world) {
  const std::string mode = words.empty() ? "" : words[0];
  const bool writes = mode == "--write";
  check((writes && words.size() == 2) ||
            ((mode == "--resume" || mode == "--resume-every") && words.size() == 3),
        "usage: resume_matrix --write FOLDER | --resume FOLDER HASH | --resume-every FOLDER HASH");
  configure_log(LogLevel::warning, world.rank(), world.size());
  world.limit_collectives(std::chrono::seconds(60));
  if (world.rank() == 0 && !fs::exists(words[1])) test::Workshop{words[1]};
  world.barrier("the folder");
  fs::current_path(words[1]);
  return writes ? write(world) : resume(world, words[2], mode == "--resume-every");
}

}  // namespace

int main(int argc, char** argv) {
  World world;
  try {
    return run({argv + 1, argv + argc}, world) ? 0 : 1;
  } catch (const std::exception& error) {
    world.end_all_ranks(error.what());
  }
}
