#include "train/run/resolved_run.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <ostream>
#include <utility>

#include "comm/agreement.h"
#include "runtime/fingerprint.h"
#include "runtime/hub_id.h"
#include "runtime/parallel.h"
#include "runtime/text.h"
#include "train/config/accelerate_config.h"
#include "train/config/fields.h"
#include "train/config/published_shapes.h"
#include "train/save/best_checkpoint.h"
#include "train/save/initial_weights.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;

// The keys that a message mentions, in its order.
std::vector<std::string> keys_in(const std::string& message, const LoadedConfig& loaded) {
  constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_.";
  std::vector<std::string> keys;
  for (size_t begin = 0; (begin = message.find_first_of(kLetters, begin)) != message.npos;) {
    const size_t end = std::min(message.find_first_not_of(kLetters, begin), message.size());
    std::string key = message.substr(begin, end - begin);
    while (key.ends_with('.')) key.pop_back();
    if (loaded.origin.contains(key) && std::find(keys.begin(), keys.end(), key) == keys.end())
      keys.push_back(key);
    begin = end;
  }
  return keys;
}

// The sources of keys that have no default, such as "tiny.toml:13, --model.heads".
std::string places_of(const std::vector<std::string>& keys, const LoadedConfig& loaded) {
  std::string places;
  for (const std::string& key : keys)
    if (const std::string& origin = loaded.origin.at(key); origin != "default")
      places += (places.empty() ? "" : ", ") + (origin == "command line" ? "--" + key : origin);
  return places.empty() ? loaded.file : places;
}

// `advice` is a clause about a path that does not exist.
void check_file(const char* key, const std::string& path, Problems& problems,
                const std::string& advice = "") {
  std::error_code error;
  if (path.empty() || fs::exists(path, error)) return;
  if (error)
    return problems.add(str(key, " is ", quoted(path), ", which cannot be opened: ", error.message()));
  const std::string start =
      fs::path(path).is_absolute() ? "" : "; relative paths start in " + fs::current_path(error).string();
  problems.add(str(key, " is ", quoted(path), ", which does not exist", start, ": correct the path",
                   start.empty() ? "" : ", or start train elsewhere", advice));
}

void check_inputs(const Config& c, const HostPlace& place, Problems& problems) {
  problems.check(
      !named_files(c.data.train).empty(),
      "data.train is \"\", must name a file to train on: tokens made by prepare, or a .jsonl or .txt file");
  problems.attempt([&] { check_length(c.train); });
  if (place.rank != 0) return;  // other ranks read the files that the first one of a host has prepared
  for (const NamedFile& file : named_files(c.data.train)) check_file("data.train", file.path, problems);
  for (const NamedFile& file : named_files(c.data.eval)) check_file("data.eval", file.path, problems);
  check_file("data.tokenizer", c.data.tokenizer, problems, download_advice(c.data.tokenizer));
  check_file("log.samples", c.log.samples, problems);
}

// The settings of the FSDP_* environment and of a file of accelerate; the file wins.
AccelerateSettings accelerate_settings(const std::string& file) {
  AccelerateSettings all = accelerate_environment();
  if (file.empty()) return all;
  AccelerateSettings of_file = read_accelerate_config(file);
  all.presets.insert(all.presets.end(), of_file.presets.begin(), of_file.presets.end());
  all.notices.insert(all.notices.end(), of_file.notices.begin(), of_file.notices.end());
  all.processes = of_file.processes;
  return all;
}

// One line per key, in the order of fields().
std::string flat(Config& config) {
  const std::map<std::string, std::string> values = config_values(config);
  std::string out;
  for (const Field& field : fields(config))
    if (values.contains(field.key)) out += field.key + " = " + values.at(field.key) + '\n';
  return out;
}

// A file of accelerate may demand another number of ranks than a run has; a plan only says so.
void check_processes(const ConfigSource& source, std::optional<int> processes, const World& world,
                     LoadedConfig& loaded, Problems& problems) {
  const int ranks = processes.value_or(world.size());
  if (source.trains)
    problems.check(ranks == world.size(), printable(source.accelerate), ": num_processes is ", ranks,
                   ", but this run has ", counted(world.size(), "rank"), ": start it with --ranks ", ranks);
  else if (ranks != world.size())
    loaded.replaced.push_back(
        str(source.accelerate, ": num_processes is ", ranks, ": start as many, with --ranks ", ranks));
}

// Replaces the names of published weights by their folders, and adds the keys that they decide. If they
// cannot be read, problems of those keys only follow from that.
void take_published_keys(LoadedConfig& loaded, Problems& problems) {
  for (std::string* const path : {&loaded.config.init_from, &loaded.config.adapter})
    problems.attempt([&] { *path = named_checkpoint(*path).string(); });
  const std::string folder = loaded.config.init_from;
  const bool is_there = folder.empty() || fs::exists(folder);  // resolve() reports a missing folder
  if (is_there && problems.attempt([&] { take_published_model(loaded); })) return;
  for (const auto& [key, origin] : loaded.origin)
    if ((key.starts_with("model.") || key.starts_with("lora.")) && key != "model.init_from")
      loaded.refused.insert(key);
}

// Adds the problems that do not follow from a refused key, each with the places of the keys it mentions.
void add_with_places(const Problems& found, const LoadedConfig& loaded, Problems& problems) {
  for (const std::string& text : found.texts()) {
    const std::vector<std::string> keys = keys_in(text, loaded);
    const bool follows = std::any_of(keys.begin(), keys.end(),
                                     [&](const std::string& key) { return loaded.refused.contains(key); });
    if (!follows) problems.add(str(places_of(keys, loaded), ": ", text));
  }
}

}  // namespace

ReadConfig read_config(const ConfigSource& source, Problems problems) {
  ReadConfig read{.source = source, .problems = std::move(problems)};
  AccelerateSettings accelerate;
  read.problems.attempt([&] { accelerate = accelerate_settings(source.accelerate); });
  read.loaded = load_config(source.path, source.overrides, read.problems, accelerate.presets);
  if (!source.shape.empty()) read.problems.attempt([&] { take_published_shape(read.loaded, source.shape); });
  read.loaded.replaced.insert(read.loaded.replaced.end(), accelerate.notices.begin(),
                              accelerate.notices.end());
  read.processes = accelerate.processes;
  return read;
}

ResolvedRun resolve(ReadConfig read, World& world) {
  const HostPlace place = place_of(world);  // this comes first, since all ranks must take part
  auto& [source, loaded, processes, problems] = read;
  check_processes(source, processes, world, loaded, problems);
  take_published_keys(loaded, problems);
  const bool here = source.ranks == 0;
  std::optional<RunSetup> setup;
  Problems found;
  found.attempt([&] {
    setup = set_up(loaded.config, here ? world.size() : source.ranks, here ? place : HostPlace{},
                   source.trains ? Purpose::run : Purpose::plan);
  });
  check_file("model.init_from", loaded.config.init_from, found, download_advice(loaded.config.init_from));
  if (source.trains) check_inputs(loaded.config, place, found);
  add_with_places(found, loaded, problems);
  problems.raise();
  return {.loaded = std::move(loaded), .setup = std::move(setup).value()};
}

void agree_on_config(World& world, Config& config, const std::string& task) {
  agree(world, str("program = ", fingerprint({"/proc/self/exe"}), "\ntask = ", task, '\n', flat(config)),
        "the config", "every rank must run the same program and read the same config");
}

void print_config(const ResolvedRun& run, World& world, std::ostream& out) {
  const auto& [loaded, setup] = run;
  use_threads(loaded.config.run, world);
  Config resolved = resolved_config(setup, thread_count()), given = loaded.config;
  const auto before = config_values(given), after = config_values(resolved);
  auto origin = loaded.origin;
  for (const auto& [key, value] : after)
    if (!before.contains(key))
      origin.at(key) += ": decided by the family";
    else if (before.at(key) != value)
      origin.at(key) += ": " + before.at(key);
  if (setup.peak_lr() != resolved.optimizer.lr)
    origin.at("optimizer.lr") += str("; the run takes ", setup.peak_lr(), ", by optimizer.lr_scaling");
  if (world.rank() != 0) return;
  for (const std::string& line : loaded.replaced) out << "# " << printable(line) << '\n';
  out << to_toml(resolved, &origin);
}

}  // namespace flatshard
