#include "tools/train_job.h"

#include <sys/stat.h>

#include "comm/job.h"
#include "comm/launch.h"
#include "comm/start_ranks.h"
#include "train/save/checkpoint_names.h"
#include "train/save/checkpoints.h"
#include "train/setup/batching.h"

namespace flatshard {
namespace {

// The options that start ranks, each with a value, and the arguments that remain for the ranks.
struct StartOptions {
  std::string typed;
  Arguments others;
};
StartOptions start_options(const Arguments& given) {
  StartOptions options;
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string name = given[i].substr(0, given[i].find('='));
    const bool starts = name == "--launch" || name == "--ranks" || name == "--hosts" || name == "--restarts";
    const size_t words = !starts ? 0 : name == given[i] && i + 1 < given.size() ? 2 : 1;
    if (!starts) options.others.push_back(given[i]);
    for (size_t word = 0; word < words; ++word)
      options.typed += (options.typed.empty() ? "" : " ") + quoted_for_shell(given[i + word]);
    i += words == 2;
  }
  return options;
}

// What names the present run in a folder: a run that begins writes another config there.
std::string run_in(const std::string& folder) {
  struct stat of {};
  return stat((folder + "/config.toml").c_str(), &of) == 0
             ? str(of.st_ino, ' ', of.st_mtim.tv_sec, ' ', of.st_mtim.tv_nsec)
             : "";
}

// The arguments with which a run continues, which names lanes whose default depends on the number of ranks.
// They resume it if it has saved a checkpoint since `before`, and begin it once more if it has not.
Arguments arguments_again(const Arguments& given, const Config& config, int64_t lane_size,
                          const std::string& before) {
  const std::string& folder = config.run.dir;
  Arguments again;
  if (config.train.lane_size == 0) again.push_back(str("--train.lane_size=", lane_size));
  if (run_in(folder) == before || steps_in(folder).empty()) {
    again.insert(again.begin(), given.begin(), given.end());
    return again;
  }
  for (size_t i = 0; i < given.size(); ++i)
    if (given[i] == "--resume")
      ++i;
    else if (given[i] != "--overwrite" && !given[i].starts_with("--resume=") &&
             !given[i].starts_with("--run.resume="))
      again.push_back(given[i]);
  again.insert(again.end(), {"--resume", kResumeLatest});
  return again;
}

}  // namespace

int run_train_job(const TrainJob& job, const Arguments& given, const Config& config, std::ostream& err) {
  const StartOptions options = start_options(given);
  check(!launched_ranks(), options.typed,
        " starts ranks, but a launcher has started this process already: leave it out");
  if (!job.launch.empty())
    return start_ranks({.command = job.launch, .options = options.typed}, options.others).code;
  const std::string before = run_in(config.run.dir);
  const int64_t lane_size = lane_size_of(config, job.ranks);
  return run_job(
      {.ranks = job.ranks,
       .hosts = job.hosts.empty() ? std::vector<Host>() : parse_hosts(job.hosts, job.ranks),
       .restarts = job.restarts,
       .options = options.typed,
       .arguments = options.others,
       .arguments_again = [&] { return arguments_again(options.others, config, lane_size, before); }},
      err);
}

std::string quoted_for_shell(const std::string& argument) {
  constexpr char kPlain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_=+.,:/@%";
  if (!argument.empty() && argument.find_first_not_of(kPlain) == argument.npos) return argument;
  std::string quoted = "'";
  for (const char c : argument) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + '\'';
}

}  // namespace flatshard
