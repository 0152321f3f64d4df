#include "train/main_program.h"

#include <filesystem>
#include <iostream>
#include <unistd.h>

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
#include "train/advice/fit_advice.h"
#include "train/agreement.h"
#include "train/program/standard_options.h"
#include "train/report/plan_text.h"
#include "train/save/initial_weights.h"
#include "train/step/peak.h"
#include "train/step/reductions.h"
#include "train/trainer.h"

namespace flatshard {
namespace {

struct CommandLine {
  std::string config;
  std::vector<std::string> overrides;
  std::string resume;
  std::string launch;
  bool print_config = false, plan = false, overwrite = false;
  int ranks = 0;    // to plan for; 0: those of this job
  std::string gpu;  // to plan for; "": none
};

// The arguments unknown to the parser, which must have the form --section.key=value.
std::vector<std::string> overrides_of(const std::vector<std::string>& rest) {
  std::vector<std::string> overrides;
  for (const std::string& text : rest) {
    check(text.starts_with("--") && text.find('.') != std::string::npos, text,
          ": unknown option; set a config key with --section.key=value, see train --help");
    overrides.push_back(text.substr(2));
  }
  return overrides;
}

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

// Prints model, batch, FLOPs per token, communication units with their traffic, and memory, for line.ranks
// ranks or, if that is 0, for the ranks of this job; and whether that fits on line.gpu. Reads no training
// data and allocates no memory for the run.
void print_plan(LoadedConfig loaded, const CommandLine& line, World& world, std::ostream& out) {
  const int ranks = line.ranks;
  check((ranks == 0 && line.gpu.empty()) || world.size() == 1,
        "--ranks and --for plan in one process: start train without mpirun");
  const GpuModel* const gpu = line.gpu.empty() ? nullptr : &gpu_model(line.gpu);
  if (gpu) loaded.config.run.device = "cuda";
  use_threads(loaded.config.run, world);  // the workspace of ops depends on them
  const RunSetup setup = ranks > 0 ? set_up(loaded.config, ranks, {}, Purpose::plan)
                                   : set_up(loaded.config, world, Purpose::plan);
  const std::string weights = open_initial_weights(setup, world).lines;
  const RunPlan plan = plan_run(setup, world.rank());
  const bool exchanges = world.size() > 1 && setup.device_is_here;  // then the bandwidth is measured
  const double peak =
      exchanges ? matrix_peak(world, setup.device, setup.compute, setup.config.precision.tf32) : 0;
  const Bandwidth bandwidth = exchanges ? bandwidth_of(setup, world) : Bandwidth{};
  const std::string reductions = describe_reductions(setup, plan, world.rank());
  if (world.rank() != 0) return;
  out << describe_setup(setup, plan) << weights << "compute   " << describe_flops(plan.flops)
      << describe_units(plan.units);
  if (exchanges) out << describe_exchange(setup, plan.units, plan.flops, peak, bandwidth);
  out << "memory    of rank 0 of " << setup.groups.ranks << ":\n"
      << describe_memory(plan.memory) << reductions;
  if (gpu) out << describe_fit(setup, plan, *gpu);
}

void run(const CommandLine& line, World& world, std::ostream& out) {
  configure_log(LogLevel::info, world.rank(), world.size());
  LoadedConfig loaded = load_config(line.config, line.overrides);
  loaded.overwrite = line.overwrite;
  take_published_model(loaded);
  world.limit_collectives(std::chrono::seconds(loaded.config.parallel.timeout_seconds));
  agree_on_config(world, loaded.config, line.print_config ? "print" : line.plan ? "plan" : "train");
  if (line.print_config) {
    if (world.rank() == 0) out << to_toml(loaded.config, &loaded.origin);
  } else if (line.plan) {
    print_plan(loaded, line, world, out);
  } else {
    run_training(loaded, world, out, on_terminal(out));
  }
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

// Reports the error on one line and ends all ranks. Several ranks may find the same error: end_all_ranks()
// lets rank 0 report it first.
int report(const std::string& message, World* world, std::ostream& out, std::ostream& err) {
  const std::string text = printable(message);
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
      "checkpoint to resume from: latest (of run.dir), or the path of a checkpoint or run folder");
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
    return "Config keys, set in the file or as --section.key=value, with their defaults:\n" + fields_help();
  });
  std::unique_ptr<World> world;
  reserve_standard_streams();
  survive_file_limits();
  try {
    app.parse(argc, argv);
    line.overrides = overrides_of(app.remaining());
    check(resume->empty() || !line.resume.empty(), "--resume is \"\", must be latest or a path");
    if (!line.launch.empty()) return launch(line.launch, argc, argv);
    if (!line.resume.empty()) line.overrides.push_back("run.resume=" + flatshard::quoted(line.resume));
    check(!(line.print_config && line.plan), "--print-config and --plan exclude each other");
    check(line.plan || line.ranks == 0, "--ranks has no effect without --plan");
    check(line.plan || line.gpu.empty(), "--for has no effect without --plan");
    world = std::make_unique<World>();
    run(line, *world, out);
    const bool trained = !line.print_config && !line.plan;  // losing a line of progress is not a failure
    return trained ? 0 : end_program("train", 0, out, err);
  } catch (const CLI::Success& help) {
    return end_program("train", app.exit(help, out, err), out, err);
  } catch (const std::exception& error) {
    return report(reason_of(error), world.get(), out, err);
  }
}

}  // namespace flatshard
