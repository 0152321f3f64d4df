#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sysexits.h>
#include <unistd.h>
#include <utility>

#include "comm/launch.h"
#include "comm/start_ranks.h"
#include "comm/watchdog.h"
#include "planner/planning.h"
#include "runtime/log.h"
#include "runtime/spelling.h"
#include "tools/programs.h"
#include "tools/train_job.h"
#include "train/config/foreign_config.h"
#include "train/config/foreign_keys.h"
#include "train/config/published_shapes.h"
#include "train/config/unknown_key.h"
#include "train/measure/gpu_models.h"
#include "train/run/resolved_run.h"
#include "train/run/trainer.h"
#include "train/save/checkpoints.h"

namespace flatshard {
namespace {

struct CommandLine {
  std::string config, accelerate, from, explain, resume, launch, hosts;
  bool has_accelerate = false, has_resume = false, converts = false, explains = false;
  std::vector<std::string> overrides;
  std::string starts;             // value of kStartsOption
  std::vector<std::string> rest;  // arguments that are left over
  bool print_config = false, plan = false, search = false, save = false, overwrite = false, verbose = false;
  int ranks = 0;  // number of ranks to start or to plan for; 0: this job's
  int restarts = 0;
  std::string machines;  // machines to plan for; "": none
  std::string shape;     // published shape to plan for; "": the config's
  std::string timeline;  // folder for a timeline; "": none
  Problems problems{};   // problems of the arguments

  ConfigSource source() const {
    return {.path = config,
            .overrides = overrides,
            .accelerate = accelerate,
            .shape = shape,
            .ranks = ranks,
            .trains = !print_config && !plans()};
  }
  TrainJob job() const { return {.launch = launch, .hosts = hosts, .ranks = ranks, .restarts = restarts}; }
  bool plans() const { return plan || search; }
  // Whether this process starts the ranks.
  bool starts_ranks() const { return !launch.empty() || (ranks > 0 && !plans() && !converts && !explains); }
};

// Options of the program, and config keys as --section.key=value or --section.key value.
struct TrainArguments {
  Arguments options;                   // arguments for the parser
  std::vector<std::string> overrides;  // "optimizer.lr=1e-3"
};

// The message about an option that neither the program nor its config has, with the option or key probably
// meant.
std::string unknown_option(const Command& program, const std::string& option) {
  const std::string similar = similar_option(program, option), word = option.substr(2);
  if (!similar.empty()) return str(option, ": unknown option; did you mean ", similar, "? See train --help");
  Config config;
  const std::vector<Field> known = fields(config);
  if (foreign_key(word)) return str(option, ": ", unknown_key(known, word).message);
  std::vector<std::string> names;  // names of keys without their sections
  for (const Field& field : known) names.push_back(name_in_section(field.key));
  const auto meant = std::find(names.begin(), names.end(), similar_word(word, names));
  return meant != names.end()
             ? str(option, ": unknown option; did you mean --",
                   known[static_cast<size_t>(meant - names.begin())].key, '?')
             : str(option,
                   ": unknown option; train takes a config file, options, and config keys as "
                   "--section.key=value, see train --help");
}

// Separates options from config keys. Adds a problem for each option that is neither the program's nor has
// the form of a key; it names the key that was probably meant. A key takes the next argument as its value,
// unless that begins with "--".
TrainArguments separate_overrides(const Command& program, const Arguments& arguments, Problems& problems) {
  const std::vector<std::string> options = long_options(program);
  TrainArguments separated;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string &argument = arguments[i], name = argument.substr(0, argument.find('='));
    if (argument == "--" || !argument.starts_with("--") ||
        std::find(options.begin(), options.end(), name) != options.end()) {
      separated.options.push_back(argument);
      continue;
    }
    std::string text = argument.substr(2);
    const bool has_value = name != argument;
    if (!has_value && i + 1 < arguments.size() && !arguments[i + 1].starts_with("--"))
      text += '=' + arguments[++i];
    if (name.find('.') == name.npos)
      problems.add(unknown_option(program, name));
    else
      separated.overrides.push_back(text);
  }
  return separated;
}

// An Error for an argument that is left after the parser has taken its own.
void check_none_left(const Arguments& left) {
  for (const std::string& argument : left) {
    const bool is_key = argument.find('=') != argument.npos;
    fail(str(argument, ": unexpected argument; ",
             is_key ? "to set a config key, write --" + argument.substr(argument.find_first_not_of('-'))
                    : "train takes one config file, and options; see train --help"));
  }
}

// Throws all problems of the arguments at once.
void read_arguments(const Command& program, const Arguments& given, CommandLine& line) {
  const TrainArguments arguments = separate_overrides(program, given, line.problems);
  line.overrides = arguments.overrides;
  Problems parsing;
  parsing.attempt([&] {
    parse_arguments(program, arguments.options);
    check_none_left(line.rest);
  });
  if (!parsing.empty()) line.problems.raise();  // a parsing error may be a consequence of them
  parsing.raise();
  check(!line.has_resume || !line.resume.empty(), "--resume is \"\", must be latest, auto or a path");
  check(!line.converts || (line.config.empty() && line.overrides.empty()),
        "--from prints a config and exits, so it takes neither CONFIG nor keys: save what it prints, and "
        "train with that file");
  check(!line.explains || (line.config.empty() && line.overrides.empty()),
        "--explain prints what a key means and exits, so it takes neither CONFIG nor keys");
  check(!line.has_accelerate || !line.accelerate.empty(), "--accelerate is \"\", must name a file");
  check(line.launch.empty() || line.ranks == 0 || !line.starts_ranks(),
        "--launch and --ranks both start ranks: leave one out");
  check(line.restarts == 0 || line.ranks > 0,
        "--restarts needs --ranks: train then starts the ranks itself, and again when some are lost");
  if (line.starts_ranks()) return;
  if (!line.starts.empty()) announce_start(line.starts);
  if (line.has_resume) line.overrides.push_back("run.resume=" + flatshard::quoted(line.resume));
  check(line.print_config + line.plan + line.search < 2,
        "--print-config, --plan and --search exclude each other");
  check(!line.search || !line.machines.empty(), "--search needs --for: a GPU, a cluster file, or cpu");
  check(line.plans() || line.machines.empty(), "--for has no effect without --plan or --search");
  check(line.plans() || line.shape.empty(),
        "--model has no effect without --plan or --search: to train, set the keys "
        "of the model or model.init_from");
}

// The command line that the user typed, also where this program has started the ranks.
std::string typed_command(const Arguments& arguments) {
  std::string command = "train";
  for (const std::string& argument : arguments)
    if (!argument.starts_with(kStartsOption)) command += ' ' + quoted_for_shell(argument);
  const char* const options = std::getenv(kStartedByUs);
  return options ? str(command, ' ', options) : command;
}

// Whether rank 0's output appears on a terminal. Under mpirun its standard output is always a
// pseudo-terminal, so the launcher's own standard output decides.
bool on_terminal(const Streams& streams) {
  if (!streams.out_is_terminal || !launched_ranks()) return streams.out_is_terminal;
  std::error_code error;
  const auto launcher =
      std::filesystem::read_symlink("/proc/" + std::to_string(getppid()) + "/fd/1", error).string();
  return !error && (launcher.starts_with("/dev/pts/") || launcher.starts_with("/dev/tty"));
}

// The exit code with --resume auto if a signal stopped the run: the same command resumes it.
constexpr int kStopped = EX_TEMPFAIL;

RankProgram::Ending run(const CommandLine& line, const Arguments& given, ReadConfig config, World& world,
                        const Streams& streams) {
  configure_log(LogLevel::info, world.rank(), world.size());
  // A file of accelerate states its number of ranks.
  if (line.plans() && line.ranks == 0 && world.size() == 1)
    config.source.ranks = config.processes.value_or(0);
  PlanFor wanted{.ranks = config.source.ranks,
                 .machines = line.machines,
                 .timeline = line.timeline,
                 .verbose = line.verbose,
                 .saves = line.save};
  config.problems.attempt([&] { plan_for_machines(wanted, config.loaded.config); });
  config.source.ranks = wanted.ranks;
  ResolvedRun resolved = resolve(std::move(config), world);
  resolved.loaded.overwrite = line.overwrite;
  Config& agreed = resolved.loaded.config;
  agree_on_config(world, agreed, line.print_config ? "print" : line.plans() ? "plan" : "train");
  if (line.print_config) {
    print_config(resolved, world, streams.out);
    return 0;
  }
  if (line.plans()) {
    line.plan ? print_plan(resolved.setup, wanted, world, streams.out)
              : print_search(resolved.setup, wanted, world, streams.out);
    return 0;
  }
  const bool starts_again = agreed.run.resume == kResumeAuto;
  const bool finished = run_training(std::move(resolved), world,
                                     {.out = streams.out,
                                      .terminal = on_terminal(streams),
                                      .verbose = line.verbose,
                                      .command = typed_command(given)});
  return {starts_again && !finished ? kStopped : 0, false};  // losing a line of progress is not a failure
}

// The time in which the ranks must meet; the default if the config has no valid one.
std::chrono::seconds time_limit(const ReadConfig& read) {
  const int64_t given = read.loaded.config.parallel.timeout_seconds;
  return std::chrono::seconds(given > 0 ? given : Config().parallel.timeout_seconds);
}

// Whether an option, such as one that needs no config, is among the arguments.
bool has_option(const Arguments& arguments, const std::string& option) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return argument == option || argument.starts_with(option + '=');
  });
}

std::string footer(HelpLevel level) {
  const bool all = level == HelpLevel::all;
  return str("Config keys", all ? "" : " that most runs set",
             ", in the file or as --section.key=value or --section.key value, with their defaults:\n") +
         fields_help(level) +
         (all ? ""
              : "\n`train --help all` lists all keys, and `train --explain KEY` says more about one.\n") +
         "\nExit codes:\n  0   finished, or stopped by a signal\n  1   failed\n  " +
         std::to_string(kStopped) +
         "  stopped by a signal before the last step, with --resume auto: the same command resumes the "
         "run\n  " +
         std::to_string(kLostRanks) + "  lost ranks or hosts: they ended, or do not answer\n";
}

std::vector<Key> config_keys() {
  Config defaults;
  std::vector<Key> keys;
  for (const Field& field : fields(defaults)) {
    const bool is_flag = std::holds_alternative<bool*>(field.member);
    keys.push_back({field.key, is_flag ? std::vector<std::string>{"true", "false"} : field.names()});
  }
  return keys;
}

std::vector<Option> options_of(CommandLine& line) {
  constexpr double kMostPlannedRanks = 1 << 20;
  return {
      {"CONFIG", &line.config, "TOML config file", {.required = !line.converts && !line.explains}},
      {"--resume",
       &line.resume,
       "checkpoint to resume from: latest or best (of run.dir, best: the lowest evaluation loss); auto (the "
       "latest, but begin if there is none); or the path of a checkpoint or run folder",
       {.given = &line.has_resume}},
      {"--accelerate",
       &line.accelerate,
       "configuration file of Hugging Face accelerate, whose values CONFIG and the command line override",
       {.given = &line.has_accelerate}},
      {"--from",
       &line.from,
       "print another trainer's config (a YAML file of axolotl, a recipe of torchtune, or an SFTConfig of "
       "TRL as YAML or JSON) as one of ours, with every key that was mapped or does not affect what is "
       "trained, and exit; any other key is an error",
       {.type = "FILE"}},
      {"--explain",
       &line.explain,
       "print what a config key means, its values, its default and an example, or a line for each key of a "
       "section, and exit",
       {.type = "KEY"}},
      {"--overwrite", &line.overwrite,
       "start although run.dir has the results of an earlier run, and replace them"},
      {"--ranks",
       &line.ranks,
       "number of ranks to start, with mpirun; Ctrl-C then stops the run after its step, and it saves. With "
       "--plan or --search: number to plan for, in this one process; with --from: number that will train",
       {.range = NumberRange{1, kMostPlannedRanks}}},
      {"--hosts",
       &line.hosts,
       "hosts for --ranks, such as h1:4,h2:4; otherwise this one, or those of a batch system",
       {.type = "HOSTS", .needs = {"--ranks"}}},
      {"--restarts",
       &line.restarts,
       "how often to start again by itself, from the newest checkpoint, when ranks or hosts are lost: on the "
       "hosts that still answer, with the bits of a run that lost none",
       {.range = NumberRange{0, 1000}}},
      {"--launch", &line.launch,
       "start the ranks with another command than --ranks does, such as \"srun -n 4\""},
      {kStartsOption, &line.starts, "", {.hidden = true}},  // start_ranks() sets it
      {"--print-config", &line.print_config,
       "print the resolved config with the source of each value, and exit"},
      {"--plan", &line.plan,
       "print parameters, FLOPs, traffic and the exact memory of a rank, and exit; needs no data, "
       "and for GPUs neither a GPU nor a build with CUDA"},
      {"--search", &line.search,
       "find the settings with which a step is fastest on the machines of --for, print the ten best, and "
       "exit; needs as little as --plan"},
      {"--verbose", &line.verbose,
       "print all details of the run's start, which are in run.log in any case, and its hosts, even if "
       "there is only one; with --search, all settings that were simulated"},
      {"--model",
       &line.shape,
       "with --plan or --search: plan for this published model in place of that of CONFIG",
       {.type = "NAME", .choices = published_shape_names()}},
      {"--for", &line.machines,
       "with --plan or --search: the machines, as a cluster file (a path that ends in .toml), as cpu for the "
       "processors of the ranks that run this command, which are measured, or as one of " +
           gpu_model_names() +
           "; --plan then tells whether the run fits on them, what would make it fit, the simulated time of "
           "a "
           "step, and which settings are faster"},
      {"--timeline",
       &line.timeline,
       "with --for: write the simulated step, of --search that of the fastest settings, as a picture and a "
       "trace into this folder",
       {.type = "FOLDER", .needs = {"--for"}}},
      {"--save",
       &line.save,
       "with --plan: write memory, predicted time and timeline of a step to plan.json in run.dir, for the "
       "machines of --for or else those that run this command, which are measured; the run then compares "
       "its steps with them",
       {.needs = {"--plan"}}},
  };
}

// The value of an option that this program gave itself; "" without it.
std::string own_option(const Arguments& arguments, const char* option) {
  const std::string prefix = str(option, '=');
  for (const std::string& argument : arguments)
    if (argument.starts_with(prefix)) return argument.substr(prefix.size());
  return "";
}

}  // namespace

int run_train(const Arguments& arguments, const Streams& streams) {
  if (const std::string file = own_option(arguments, kEndRanksOption); !file.empty()) {
    announce_start(own_option(arguments, kStartsOption));
    end_ranks(file);
    return 0;
  }
  CommandLine line;
  line.converts = has_option(arguments, "--from");
  line.explains = has_option(arguments, "--explain");
  const Command program{
      .name = "train",
      .about =
          "Trains a transformer from a config file. Under mpirun -np N, N ranks train one model together.",
      .options = options_of(line),
      .footer = footer(HelpLevel::usual),
      .full_footer = footer(HelpLevel::all),
      .keys = config_keys(),
      .rest = &line.rest};
  ReadConfig config;
  std::string printed;  // by --from or --explain
  const auto read = [&] {
    read_arguments(program, arguments, line);
    if (line.converts) printed = converted_config(line.from, std::max(line.ranks, 1));
    if (line.explains) printed = explained(line.explain);
    if (line.converts || line.explains) return kMeetingTime;
    if (line.launch.empty()) config = read_config(line.source(), line.problems);
    return time_limit(config);
  };
  const auto run_or_start = [&](World& world) -> RankProgram::Ending {
    if (line.converts || line.explains) {
      if (world.rank() == 0) streams.out << printed;
      return 0;
    }
    if (line.starts_ranks())
      return {run_train_job(line.job(), arguments, config.loaded.config, streams.err), false};
    return run(line, arguments, std::move(config), world, streams);
  };
  return run_on_ranks({.name = program.name, .read = read, .run = run_or_start}, streams);
}

}  // namespace flatshard
