#include "tests/fuzz/try_command.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <sys/stat.h>

#include "runtime/check.h"
#include "runtime/host_memory.h"
#include "runtime/parallel.h"
#include "tools/programs.h"
#include "train/config/config.h"

namespace flatshard::test {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kMemory = int64_t{16} << 20;  // a model that fits trains in milliseconds

void require(bool holds, const std::string& promise) {
  if (!holds) throw std::logic_error(promise);
}

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Outcome {
  int exit_code;
  std::string out, err;
};

Outcome run(const OddCommand& command) {
  std::istringstream in;
  std::ostringstream out, err;
  const ScopedHostMemory little(kMemory);
  const int exit_code = run_train(command.arguments, {in, out, err});
  return {exit_code, std::move(out).str(), std::move(err).str()};
}

// One printable line, or a line for each of several problems, indented.
bool is_report(std::string text) {
  for (size_t at = 0; (at = text.find("\n  ", at)) != text.npos;) text[at] = ' ';
  return text.ends_with('\n') &&
         std::none_of(text.begin(), text.end() - 1, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

// A file under its final name is complete, even after a failed run.
void check_nothing_half_written(const fs::path& run_dir) {
  for (const auto& entry : fs::recursive_directory_iterator("."))
    require(entry.path().extension() != ".tmp", "a failed run leaves " + entry.path().string());
  std::error_code none;
  const bool is_workshop = run_dir.empty() || run_dir == ".";  // whose config is the input
  if (is_workshop || !fs::is_regular_file(run_dir / "config.toml", none)) return;
  try {
    load_config((run_dir / "config.toml").string(), {});
  } catch (const std::exception& error) {
    require(false, str("a failed run leaves a config that does not load: ", error.what()));
  }
}

void check_run_folder(const fs::path& run_dir) {
  load_config((run_dir / "config.toml").string(), {});
  for (const char* name : {"metrics.jsonl", "report.html", "model/config.json", "model/model.safetensors"}) {
    std::error_code missing;
    require(fs::file_size(run_dir / name, missing) > 0 && !missing, str("a run leaves no ", name));
  }
}

// The files that the command has added to the workshop.
void clean_up() {
  static const std::set<std::string> kept{"config.toml", "corpus.tok", "cut.tok",
                                          "outside.tok", "empty.tok",  "pipe"};
  std::vector<fs::path> added;
  for (const auto& entry : fs::directory_iterator("."))
    if (!kept.contains(entry.path().filename().string())) added.push_back(entry.path());
  for (const fs::path& path : added) fs::remove_all(path);
}

}  // namespace

OddWorkshop::OddWorkshop(const std::string& folder) : before_(fs::current_path().string()) {
  const Workshop workshop(folder);
  fs::current_path(folder);
  toml_ = read("config.toml");
  const std::string corpus = read("corpus.tok");
  std::ofstream("cut.tok", std::ios::binary) << corpus.substr(0, corpus.size() - 8);
  std::string outside = corpus;
  outside[49] = 1;  // the upper byte of the first token
  std::ofstream("outside.tok", std::ios::binary) << outside;
  std::ofstream("empty.tok").flush();
  require(mkfifo("pipe", 0600) == 0, "cannot make a pipe");
}

OddWorkshop::~OddWorkshop() {
  std::error_code ignored;
  fs::current_path(before_, ignored);
}

void OddWorkshop::try_command(const OddCommand& command, CommandTally& tally) const {
  ++tally.commands;
  std::ofstream("config.toml", std::ios::binary) << command.toml;
  const int threads = thread_count();  // which run.threads changes
  const Outcome outcome = run(command);
  set_thread_count(threads);
  const std::string said = outcome.out + outcome.err;
  const fs::path run_dir = command.run_dir;
  if (outcome.exit_code == 0) {
    require(outcome.err.empty(), "exit code 0 with an error: " + said);
    // The hash at the end of a run; data.weights of --print-config has a line that begins alike.
    const size_t weights = outcome.out.rfind("\nweights ");
    const bool trained =
        weights != std::string::npos && !outcome.out.substr(weights).starts_with("\nweights =");
    ++(trained ? tally.trained : tally.answered);
    if (trained) check_run_folder(run_dir);
  } else {
    require(outcome.exit_code == 1, str("exit code ", outcome.exit_code, ": ", said));
    require(outcome.err.starts_with("train: ") && is_report(outcome.err),
            "the error is not one printable line beginning with train: " + said);
    if (!outcome.out.empty()) ++tally.stopped;
    check_nothing_half_written(run_dir);
  }
  clean_up();
}

}  // namespace flatshard::test
