#include "train/step/reductions.h"

#include <iomanip>
#include <sstream>

#include "runtime/text.h"
#include "train/step/machinery.h"

namespace flatshard {
namespace {

struct Way {
  const char *name, *bits;
};
constexpr Way kWays[] = {{"exact", "the same bits on any power of two of ranks"},
                         {"sequential", "the same bits for one number of ranks"},
                         {"native", "in the order of the communication library"}};

}  // namespace

std::string describe_reductions(const RunSetup& setup, World& world) {
  std::ostringstream out;
  out << "reduction of gradients, what each way would take and receive in a step:\n";
  for (const Way& way : kWays) {
    out << "  " << std::left << std::setw(12) << way.name << std::right;
    Config config = setup.config;
    config.parallel.reduction = way.name;
    if (way.name == std::string("native") && setup.units.wire != DType::f32) {
      out << "  adds fp32 alone, not precision.reduce = \"" << config.precision.reduce << "\"\n";
      continue;
    }
    const RunSetup other = set_up(config, world, Purpose::plan);
    const RunPlan plan = plan_run(other, world);
    out << std::setw(16) << plan.memory_bytes << " B " << std::setw(17)
        << with_commas(plan.units.all.traffic.reduced) << " B  " << way.bits
        << (setup.config.parallel.reduction == way.name ? " (in use)" : "") << '\n';
  }
  return std::move(out).str();
}

}  // namespace flatshard
