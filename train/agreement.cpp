#include "train/agreement.h"

#include <map>

#include "comm/agreement.h"
#include "runtime/check.h"

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
  agree(world, str("task = ", task, '\n', flat(config)), "the config",
        "every rank must read the same config");
}

}  // namespace flatshard
