#include "train/run/agreement.h"

#include <map>

#include "comm/agreement.h"
#include "hub/adapter_base.h"
#include "runtime/check.h"
#include "runtime/fingerprint.h"
#include "train/config/fields.h"

namespace flatshard {
namespace {

// One line per key, in the order of fields().
std::string flat(Config& config) {
  const std::map<std::string, std::string> values = config_values(config);
  std::string out;
  for (const Field& field : fields(config))
    if (values.contains(field.key)) out += field.key + " = " + values.at(field.key) + '\n';
  return out;
}

}  // namespace

void agree_on_config(World& world, Config& config, const std::string& task) {
  agree(world, str("program = ", fingerprint({"/proc/self/exe"}), "\ntask = ", task, '\n', flat(config)),
        "the config", "every rank must run the same program and read the same config");
}

RunInputs agree_on_inputs(World& world, const RunSetup& setup) {
  const Config& config = setup.config;
  check(!config.data.train.empty(), "data.train is \"\", must name a token file: make one with prepare");
  RunInputs inputs;
  std::string weights;
  succeed_together(world, [&] {
    inputs.train = fingerprint({config.data.train});
    if (!config.data.eval.empty()) inputs.eval = fingerprint({config.data.eval});
    if (config.init_from.empty()) return;
    const bool are_read = config.run.resume.empty() || setup.has_adapters(),
               all_read = are_read && !setup.units.sync_initial_values;
    if (all_read) weights = weights_fingerprint(config.init_from);
    if (setup.has_adapters() && (all_read || world.rank() == 0))
      inputs.base = weights_fingerprint(config.init_from);
  });
  agree(world,
        str("data.train = ", inputs.train, "\ndata.eval = ", inputs.eval.value_or(""),
            "\nmodel.init_from = ", weights, '\n'),
        "the inputs",
        "every rank must read the same files: copy them to all hosts anew, or share a file system");
  return inputs;
}

}  // namespace flatshard
