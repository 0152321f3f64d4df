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
  bool print_config = false, plan = false, overwrite = false, verbose = false;
  int ranks = 0;        // to plan for; 0: those of this job
  std::string gpu;      // to plan for; "": none
  Problems problems{};  // of the arguments

  bool trains() const { return !print_config && !plan; }
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
int run(const CommandLine& line, World& world, std::ostream& out, std::ostream& err) {
  configure_log(LogLevel::info, world.rank(), world.size());
  LoadedConfig loaded = load_checked({.path = line.config,
                                      .overrides = line.overrides,
                                      .accelerate = line.accelerate,
                                      .ranks = line.ranks,
                                      .trains = line.trains()},
                                     line.problems, world);
  loaded.overwrite = line.overwrite;
  world.limit_collectives(std::chrono::seconds(loaded.config.parallel.timeout_seconds));
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
  const CLI::Option* const resume = app.add_option(
      "--resume", line.resume,
      "checkpoint to resume from: latest (of run.dir); auto (the same, but begin if there is none); or the "
      "path of a checkpoint or run folder");
  const CLI::Option* const accelerate = app.add_option(
      "--accelerate", line.accelerate,
      "configuration file of Hugging Face accelerate, whose values CONFIG and the command line override");
  app.add_flag("--overwrite", line.overwrite,
               "start although run.dir has the results of an earlier run, and replace them");
  app.add_option(
      "--launch", line.launch,
      "start the ranks with this command, such as \"mpirun -np 4\"; then Ctrl-C stops the run after "
      "its step, and it saves");
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
  std::unique_ptr<World> world;
  reserve_standard_streams();
  survive_file_limits();
  try {
    world = std::make_unique<World>();  // so that a mistake on the command line is reported by one rank
    const TrainArguments arguments = separate_overrides(app, arguments_of(argc, argv), line.problems);
    line.overrides = arguments.overrides;
    Problems parsing;
    parsing.attempt([&] {
      parse_arguments(app, arguments.options);
      check_none_left(app.remaining());
    });
    if (!parsing.empty()) line.problems.raise();  // of which the other may be a consequence
    parsing.raise();
    check(resume->empty() || !line.resume.empty(), "--resume is \"\", must be latest, auto or a path");
    check(accelerate->empty() || !line.accelerate.empty(), "--accelerate is \"\", must name a file");
    if (!line.launch.empty()) return launch(line.launch, argc, argv);
    if (!line.resume.empty()) line.overrides.push_back("run.resume=" + flatshard::quoted(line.resume));
    check(!(line.print_config && line.plan), "--print-config and --plan exclude each other");
    check(line.plan || line.ranks == 0, "--ranks has no effect without --plan: to train on ", line.ranks,
          " ranks, start them with --launch \"mpirun -np ", line.ranks, '"');
    check(line.plan || line.gpu.empty(), "--for has no effect without --plan");
    return run(line, *world, out, err);
  } catch (const CLI::Success& help) {
    const bool prints = world->rank() == 0;
    return end_program("train", prints ? app.exit(help, out, err) : 0, out, err);
  } catch (const std::exception& error) {
    return report(report_of(error), world.get(), out, err);
  }
}

}  // namespace flatshard
