#include "train/run/main_program.h"

#include <filesystem>
#include <iostream>
#include <sysexits.h>
#include <unistd.h>
#include <utility>

#include <CLI/CLI.hpp>

#include "comm/launch.h"
#include "comm/start_ranks.h"
#include "comm/world.h"
#include "runtime/log.h"
#include "runtime/program_end.h"
#include "runtime/reason.h"
#include "runtime/standard_streams.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/command_line/arguments.h"
#include "train/command_line/standard_options.h"
#include "train/plan/fit_advice.h"
#include "train/run/agreement.h"
#include "train/run/checked_config.h"
#include "train/run/command_line.h"
#include "train/run/print_plan.h"
#include "train/run/trainer.h"
#include "train/save/checkpoints.h"

namespace flatshard {
namespace {

struct CommandLine {
  std::string config;
  std::string accelerate;
  std::vector<std::string> overrides;
  std::string resume;
  std::string launch;
  std::string starts;  // kStartsOption
  bool print_config = false, plan = false, overwrite = false, verbose = false;
  int ranks = 0;        // to plan for; 0: those of this job
  std::string gpu;      // to plan for; "": none
  Problems problems{};  // of the arguments

  ConfigSource source() const {
    return {.path = config,
            .overrides = overrides,
            .accelerate = accelerate,
            .ranks = ranks,
            .trains = !print_config && !plan};
  }
};

// Whether rank 0's output appears on a terminal. Under mpirun its standard output is always a
// pseudo-terminal, so the launcher's own standard output decides.
bool on_terminal(const std::ostream& out) {
  if (&out != &std::cout || !isatty(STDOUT_FILENO)) return false;
  if (!launched_ranks()) return true;
  std::error_code error;
  const auto launcher =
      std::filesystem::read_symlink("/proc/" + std::to_string(getppid()) + "/fd/1", error).string();
  return !error && (launcher.starts_with("/dev/pts/") || launcher.starts_with("/dev/tty"));
}

// With --resume auto, when a signal stopped the run: the same command resumes it.
constexpr int kStopped = EX_TEMPFAIL;

// Returns the exit code.
int run(const CommandLine& line, ReadConfig config, World& world, std::ostream& out, std::ostream& err) {
  configure_log(LogLevel::info, world.rank(), world.size());
  LoadedConfig loaded = load_checked(std::move(config), world);
  loaded.overwrite = line.overwrite;
  agree_on_config(world, loaded.config, line.print_config ? "print" : line.plan ? "plan" : "train");
  if (line.print_config) {
    print_config(loaded, world, out);
  } else if (line.plan) {
    print_plan(loaded, {.ranks = line.ranks, .gpu = line.gpu}, world, out);
  } else {
    const bool starts_again = std::exchange(loaded.config.run.resume,
                                            resolved_resume(loaded.config.run, world)) == kResumeAuto,
               finished = run_training(loaded, world,
                                       {.out = out, .terminal = on_terminal(out), .verbose = line.verbose});
    return starts_again && !finished ? kStopped : 0;  // losing a line of progress is not a failure
  }
  return end_program("train", 0, out, err);
}

// Reads the arguments, of which the parser knows those of the program. Throws all mistakes at once.
void read_arguments(CLI::App& app, const std::vector<std::string>& given, CommandLine& line) {
  const TrainArguments arguments = separate_overrides(app, given, line.problems);
  line.overrides = arguments.overrides;
  Problems parsing;
  parsing.attempt([&] {
    parse_arguments(app, arguments.options);
    check_none_left(app.remaining());
  });
  if (!parsing.empty()) line.problems.raise();  // of which the other may be a consequence
  parsing.raise();
  check(app.count("--resume") == 0 || !line.resume.empty(),
        "--resume is \"\", must be latest, auto or a path");
  check(app.count("--accelerate") == 0 || !line.accelerate.empty(), "--accelerate is \"\", must name a file");
  if (!line.launch.empty()) return;
  if (!line.starts.empty()) announce_start(line.starts);
  if (!line.resume.empty()) line.overrides.push_back("run.resume=" + flatshard::quoted(line.resume));
  check(!(line.print_config && line.plan), "--print-config and --plan exclude each other");
  check(line.plan || line.ranks == 0, "--ranks has no effect without --plan: to train on ", line.ranks,
        " ranks, start them with --launch \"mpirun -np ", line.ranks, '"');
  check(line.plan || line.gpu.empty(), "--for has no effect without --plan");
}

// How long the ranks may take to meet; the default where the config is wrong.
std::chrono::seconds time_limit(const ReadConfig& read) {
  const int64_t given = read.loaded.config.parallel.timeout_seconds;
  return std::chrono::seconds(given > 0 ? given : Config().parallel.timeout_seconds);
}

// Runs this command line without --launch on several ranks.
int launch(const std::string& launcher, int argc, const char* const* argv) {
  check(!launched_ranks(),
        "--launch starts ranks, but a launcher has started this process already: leave it out");
  std::vector<std::string> arguments;
  for (int i = 1; i < argc; ++i)
    if (const std::string argument = argv[i]; argument == "--launch")
      ++i;
    else if (!argument.starts_with("--launch="))
      arguments.push_back(argument);
  return start_ranks(launcher, arguments);
}

// Reports the error and ends all ranks. Several ranks may find the same error: end_all_ranks() lets rank 0
// report it first.
int report(const std::string& text, World* world, std::ostream& out, std::ostream& err) {
  out << std::flush;
  if (world && world->size() > 1) world->end_all_ranks(text);
  err << "train: " << text << std::endl;
  return 1;
}

}  // namespace

int train_main(int argc, const char* const* argv, std::ostream& out, std::ostream& err) {
  CommandLine line;
  CLI::App app(
      "Trains a transformer from a config file. Under mpirun -np N, N ranks train one model together.",
      "train");
  app.add_option("CONFIG", line.config, "TOML config file")->required();
  app.add_option(
      "--resume", line.resume,
      "checkpoint to resume from: latest (of run.dir); auto (the same, but begin if there is none); or the "
      "path of a checkpoint or run folder");
  app.add_option(
      "--accelerate", line.accelerate,
      "configuration file of Hugging Face accelerate, whose values CONFIG and the command line override");
  app.add_flag("--overwrite", line.overwrite,
               "start although run.dir has the results of an earlier run, and replace them");
  app.add_option(
      "--launch", line.launch,
      "start the ranks with this command, such as \"mpirun -np 4\"; then Ctrl-C stops the run after "
      "its step, and it saves");
  app.add_option(kStartsOption, line.starts)->group("");  // of start_ranks(), not shown
  app.add_flag("--print-config", line.print_config,
               "print the resolved config with the source of each value, and exit");
  app.add_flag(
      "--plan", line.plan,
      "print parameters, FLOPs, traffic and the exact memory of a rank, and exit; needs no data and no GPU");
  app.add_flag(
      "--verbose", line.verbose,
      "print all details of the run's start, which are in run.log in any case, and its hosts, even if "
      "there is only one");
  constexpr int kMostPlannedRanks = 1 << 20;
  app.add_option("--ranks", line.ranks, "with --plan: number of ranks to plan for, in this one process")
      ->check(CLI::Range(1, kMostPlannedRanks));
  app.add_option("--for", line.gpu,
                 "with --plan: whether the run fits on this GPU, what would make it fit, and an "
                 "estimate of a step's time: " +
                     gpu_model_names());
  app.allow_extras();
  Config defaults;
  add_standard_options(app, fields(defaults));
  app.footer([] {
    return "Config keys, set in the file or as --section.key=value or --section.key value, with their "
           "defaults:\n" +
           fields_help() + "\nExit codes:\n  0   finished, or stopped by a signal\n  1   failed\n  " +
           std::to_string(kStopped) +
           "  stopped by a signal before the last step, with --resume auto: the same command resumes the "
           "run\n";
  });
  reserve_standard_streams();
  survive_file_limits();
  // The ranks meet within the time that the config allows. Mistakes wait until they have, so that one rank
  // reports them.
  ReadConfig config;
  std::exception_ptr mistake;
  try {
    read_arguments(app, arguments_of(argc, argv), line);
    if (line.launch.empty()) config = read_config(line.source(), line.problems);
  } catch (...) {
    mistake = std::current_exception();
  }
  std::unique_ptr<World> world;
  try {
    world = std::make_unique<World>(time_limit(config));
    if (mistake) std::rethrow_exception(mistake);
    if (!line.launch.empty()) return launch(line.launch, argc, argv);
    return run(line, std::move(config), *world, out, err);
  } catch (const CLI::Success& help) {
    const bool prints = world->rank() == 0;
    return end_program("train", prints ? app.exit(help, out, err) : 0, out, err);
  } catch (const std::exception& error) {
    return report(report_of(error), world.get(), out, err);
  }
}

}  // namespace flatshard
