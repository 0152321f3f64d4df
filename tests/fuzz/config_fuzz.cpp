// fuzz_config [--seconds N] [--seed N] [--first N] [--count N]: tries odd configurations until the time is up
// or one breaks a promise (try_config.h). The inputs run in a second process, so that a crash or an endless
// loop is reported with its number like any other failure, and leaves its file behind.

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
#include "tests/fuzz/try_config.h"

using namespace flatshard;
using namespace flatshard::test;

namespace {

constexpr unsigned kInputSeconds = 20;  // an input that takes longer hangs

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
          ": usage: fuzz_config [--seconds N] [--seed N] [--first N] [--count N]");
    char* end = nullptr;
    *value = std::strtoll(argv[i + 1], &end, 10);
    check(*argv[i + 1] != '\0' && *end == '\0' && *value >= 0, name, " is \"", argv[i + 1],
          "\", must be a whole number that is not negative");
  }
  return o;
}

// What the two processes share.
struct Shared {
  int64_t running;  // the number of the input
  Tally tally;
};

Shared& shared_memory() {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  check(memory != MAP_FAILED, "no shared memory");
  return *new (memory) Shared{};
}

int try_inputs(const Options& o, const std::string& file, Shared& shared) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(o.seconds);
  for (int64_t i = 0; i < o.count && std::chrono::steady_clock::now() < end; ++i) {
    shared.running = o.first + i;
    alarm(kInputSeconds);
    const ConfigInput input = mutated_config(static_cast<uint64_t>(o.seed), shared.running);
    try {
      try_config(input, file, shared.tally);
    } catch (const std::exception& error) {
      std::cerr << error.what() << '\n';
      for (const std::string& text : input.overrides) std::cerr << "override: --" << text << '\n';
      return 1;
    }
  }
  return 0;
}

int fuzz(const Options& o) {
  const std::string file =
      (std::filesystem::temp_directory_path() / str("fuzz_config_", getpid(), ".toml")).string();
  Shared& shared = shared_memory();
  const pid_t child = fork();
  check(child >= 0, "cannot start a second process: ", std::strerror(errno));
  if (child == 0) _exit(try_inputs(o, file, shared));
  int status = 0;
  check(waitpid(child, &status, 0) == child, "cannot wait for the second process");
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::filesystem::remove(file);
    const Tally& t = shared.tally;
    std::cout << t.inputs << " inputs of seed " << o.seed << " from " << o.first << ": " << t.loaded
              << " loaded, " << t.resolved << " of these resolved, the others were refused in one line\n";
    return 0;
  }
  std::cerr << "fuzz_config: input " << shared.running;
  if (WIFSIGNALED(status))
    std::cerr << " ended by signal " << WTERMSIG(status) << " (" << strsignal(WTERMSIG(status)) << ')';
  std::cerr << "; again: fuzz_config --seed " << o.seed << " --first " << shared.running
            << " --count 1; its TOML: " << file << '\n';
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return fuzz(parse(argc, argv));
  } catch (const std::exception& error) {
    std::cerr << "fuzz_config: " << error.what() << '\n';
    return 1;
  }
}
