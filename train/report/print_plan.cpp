#include "train/report/print_plan.h"

#include <ostream>

#include "train/report/start_up.h"
#include "train/save/initial_weights.h"
#include "train/step/bandwidth.h"
#include "train/step/machinery.h"
#include "train/step/peak.h"
#include "train/step/reductions.h"

namespace flatshard {

void print_plan(const LoadedConfig& loaded, World& world, std::ostream& out) {
  use_threads(loaded.config.run, world);  // ops take scratch for each of them
  const RunSetup setup = set_up(loaded.config, world, Purpose::plan);
  const std::string weights = open_initial_weights(setup, world).line;
  const RunPlan plan = plan_run(setup, world);
  const bool exchanges = world.size() > 1 && setup.device_is_here;  // how fast is measured
  const double peak =
      exchanges ? matrix_peak(world, setup.device, setup.compute, setup.config.precision.tf32) : 0;
  const Bandwidth bandwidth = exchanges ? bandwidth_of(setup, world) : Bandwidth{};
  const std::string reductions = describe_reductions(setup, world);
  if (world.rank() != 0) return;
  out << plan.setup_text << weights << "compute   " << describe_flops(plan.flops) << plan.units.text();
  if (exchanges) out << describe_exchange(setup, plan.units, plan.flops, peak, bandwidth);
  out << "memory    of rank 0 of " << world.size() << ":\n" << plan.memory_table << reductions;
}

}  // namespace flatshard
