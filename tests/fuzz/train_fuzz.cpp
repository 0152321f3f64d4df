// fuzz_train [--seconds N] [--seed N] [--first N] [--count N]: tries odd inputs until the time is up or one
// fails: configurations (try_config.h) for even numbers, command lines (try_command.h) for odd ones. The
// inputs run in a second process, so a crash or an endless loop is reported with its number like any other
// failure, and its files are kept.

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <limits>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/check.h"
#include "tests/fuzz/try_command.h"
#include "tests/fuzz/try_config.h"

using namespace flatshard;
using namespace flatshard::test;

namespace {

constexpr unsigned kInputSeconds = 20;  // an input that takes longer hangs
constexpr const char* kConfigFile = "odd.toml";

struct Options {
  int64_t seconds = 10, seed = 1, first = 0, count = std::numeric_limits<int64_t>::max();
};

Options parse(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; i += 2) {
    const std::string name = argv[i];
    int64_t* value = name == "--seconds" ? &o.seconds
                     : name == "--seed"  ? &o.seed
                     : name == "--first" ? &o.first
                     : name == "--count" ? &o.count
                                         : nullptr;
    check(value && i + 1 < argc, name,
          ": usage: fuzz_train [--seconds N] [--seed N] [--first N] [--count N]");
    char* end = nullptr;
    *value = std::strtoll(argv[i + 1], &end, 10);
    check(*argv[i + 1] != '\0' && *end == '\0' && *value >= 0, name, " is \"", argv[i + 1],
          "\", must be a whole number that is not negative");
  }
  return o;
}

// The state shared by the two processes.
struct Shared {
  int64_t running;  // the number of the input
  Tally configs;
  CommandTally commands;
  double longest;  // seconds, of one input
  int64_t longest_number;
};

Shared& shared_memory() {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "no shared memory");
  return *new (memory) Shared{};
}

void print_input(const std::vector<std::string>& words) {
  for (const std::string& word : words) std::cerr << "  " << word << '\n';
}

// Whether the input passes.
bool try_input(const Options& o, const OddWorkshop& workshop, Shared& shared) {
  const uint64_t seed = static_cast<uint64_t>(o.seed);
  std::vector<std::string> words;
  try {
    if (shared.running % 2 == 0) {
      const ConfigInput input = mutated_config(seed, shared.running);
      words = input.overrides;
      try_config(input, kConfigFile, shared.configs);
    } else {
      const OddCommand command = odd_command(seed, shared.running, workshop.toml());
      words = command.arguments;
      workshop.try_command(command, shared.commands);
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\nof config.toml, or odd.toml, with\n";
    print_input(words);
    return false;
  }
  return true;
}

int try_inputs(const Options& o, const std::string& folder, Shared& shared) {
  const OddWorkshop workshop(folder);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(o.seconds);
  for (int64_t i = 0; i < o.count && std::chrono::steady_clock::now() < end; ++i) {
    shared.running = o.first + i;
    alarm(kInputSeconds);
    const auto begin = std::chrono::steady_clock::now();
    if (!try_input(o, workshop, shared)) return 1;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    if (took.count() > shared.longest) shared.longest = took.count(), shared.longest_number = shared.running;
  }
  return 0;
}

void print_tally(const Options& o, const Shared& shared) {
  const Tally& c = shared.configs;
  const CommandTally& t = shared.commands;
  std::cout << c.inputs + t.commands << " inputs of seed " << o.seed << " from " << o.first
            << "; the longest, " << shared.longest_number << ", took " << shared.longest << " s\n"
            << c.inputs << " configs: " << c.loaded << " loaded, " << c.resolved
            << " of these resolved, the others were refused in one line\n"
            << t.commands << " command lines: " << t.trained << " trained to the end, " << t.answered
            << " were answered, " << t.stopped << " stopped in a run, the others were refused in one line\n";
}

int fuzz(const Options& o) {
  // A run may write its note into the parent folder.
  const std::string folder = (std::filesystem::temp_directory_path() / str("fuzz_train_", getpid())).string();
  Shared& shared = shared_memory();
  const pid_t child = fork();
  check(child >= 0, "cannot start a second process: ", std::strerror(errno));
  if (child == 0) _exit(try_inputs(o, folder + "/workshop", shared));
  int status = 0;
  check(waitpid(child, &status, 0) == child, "cannot wait for the second process");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::filesystem::remove_all(folder);
    print_tally(o, shared);
    return 0;
  }
  std::cerr << "fuzz_train: input " << shared.running;
  if (WIFSIGNALED(status))
    std::cerr << " ended by signal " << WTERMSIG(status) << " (" << strsignal(WTERMSIG(status)) << ')';
  std::cerr << "; again: fuzz_train --seed " << o.seed << " --first " << shared.running
            << " --count 1; its files: " << folder << '\n';
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return fuzz(parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "fuzz_train: " << error.what() << '\n';
    return 1;
  }
}
