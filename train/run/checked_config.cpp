#include "train/run/checked_config.h"

#include <filesystem>
#include <map>
#include <ostream>
#include <utility>

#include "comm/agreement.h"
#include "runtime/fingerprint.h"
#include "runtime/parallel.h"
#include "runtime/text.h"
#include "train/config/accelerate_config.h"
#include "train/config/fields.h"
#include "train/config/published_shapes.h"
#include "train/save/best_checkpoint.h"
#include "train/save/initial_weights.h"
#include "train/setup/config_check.h"
#include "train/setup/resolved_config.h"

namespace flatshard {

namespace {

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

LoadedConfig load_checked(ReadConfig read, World& world) {
  auto& [source, loaded, processes, problems] = read;
  const HostPlace place = place_of(world);  // this comes first, since all ranks must take part
  if (const int ranks = processes.value_or(world.size()); source.trains)
    problems.check(ranks == world.size(), printable(source.accelerate), ": num_processes is ", ranks,
                   ", but this run has ", counted(world.size(), "rank"),
                   ": start it with --launch \"mpirun -np ", ranks, '"');
  else if (ranks != world.size())
    loaded.replaced.push_back(str(source.accelerate, ": num_processes is ", ranks,
                                  ": start as many ranks, with --launch \"mpirun -np ", ranks, '"'));
  for (std::string* const path : {&loaded.config.init_from, &loaded.config.adapter})
    problems.attempt([&] { *path = named_checkpoint(*path).string(); });
  const std::string folder = loaded.config.init_from;
  const bool is_there =
      folder.empty() || std::filesystem::exists(folder);  // check_config() reports a missing folder
  if (!is_there || !problems.attempt([&] { take_published_model(loaded); }))
    for (const auto& [key, origin] : loaded.origin)
      if ((key.starts_with("model.") || key.starts_with("lora.")) && key != "model.init_from")
        loaded.refused.insert(key);
  const bool here = source.ranks == 0;
  check_config(loaded, here ? world.size() : source.ranks, here ? place : HostPlace{},
               source.trains ? Purpose::run : Purpose::plan, problems);
  problems.raise();
  return std::move(loaded);
}

void agree_on_config(World& world, Config& config, const std::string& task) {
  agree(world, str("program = ", fingerprint({"/proc/self/exe"}), "\ntask = ", task, '\n', flat(config)),
        "the config", "every rank must run the same program and read the same config");
}

void print_config(const LoadedConfig& loaded, World& world, std::ostream& out) {
  use_threads(loaded.config.run, world);
  const RunSetup setup = set_up(loaded.config, world, Purpose::plan);
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
