#include "train/run/run_header.h"

#include <optional>
#include <ostream>

#include "runtime/parallel.h"
#include "runtime/text.h"
#include "train/measure/peak.h"
#include "train/plan/fit_advice.h"
#include "train/plan/plan_text.h"
#include "train/plan/reductions.h"
#include "train/plan/stage_table.h"
#include "train/save/initial_weights.h"

namespace flatshard {

std::string describe_run(const RunHeader& run, bool details) {
  const RunSetup& setup = run.setup;
  const RunPlan& plan = run.plan;
  const std::string device = device_note(setup);
  std::string text =
      str("device    ", setup.device, ", ", counted(setup.ranks(), "rank"), " x ",
          counted(thread_count(), "thread"), ", ", describe(run.peak), '\n',
          device.empty() ? "" : str("          ", device, '\n'), run.hosts, describe_setup(setup, plan),
          plan.products.empty() ? "" : str("products  ", plan.products, '\n'),
          plan.transfers.empty() ? "" : str("transfers ", plan.transfers, '\n'),
          plan.attention.empty() ? "" : str("attention ", plan.attention, '\n'), run.weights, "data      ",
          run.data, "\nrun       ", with_commas(run.steps), " steps, ", describe_flops(plan.flops));
  for (const std::string& line : run.replaced) text += str("          ", line, '\n');
  text += details ? describe_units(plan.units, setup.pipeline.stages) + describe_stages(setup)
                  : plan.units.warning;
  text += describe_exchange(setup, plan.units, plan.flops, run.peak.measured, run.bandwidth);
  text += str("memory    of rank 0, exact", details ? ":\n" : ", ",
              details ? describe_memory(plan) : summarize_memory(plan.memory));
  if (const int64_t bytes = cost_of_exact_sums(setup, plan, 0); bytes > 0)
    text += str("          ", human_bytes(bytes), " of it for exact sums (parallel.reduction)\n");
  if (!details) text += str("details   ", setup.config.run.dir, "/run.log, or --verbose\n");
  return text + run.resumed;
}

void print_plan(LoadedConfig loaded, const PlanFor& wanted, World& world, std::ostream& out) {
  const int ranks = wanted.ranks;
  check((ranks == 0 && wanted.gpu.empty()) || world.size() == 1,
        "--ranks and --for plan in one process: start train without mpirun");
  std::optional<Cluster> cluster;
  if (!wanted.gpu.empty()) {
    cluster = cluster_named(wanted.gpu);
    loaded.config.run.device = DeviceChoice::cuda;
    if (loaded.config.parallel.host_ranks == 0) loaded.config.parallel.host_ranks = cluster->node_gpus;
  }
  use_threads(loaded.config.run, world);  // the workspace of ops depends on them
  const RunSetup setup = ranks > 0 ? set_up(loaded.config, ranks, {}, Purpose::plan)
                                   : set_up(loaded.config, world, Purpose::plan);
  const std::string weights = describe_initial_weights(setup, world);
  const RunPlan plan = plan_run(setup, world.rank());
  const bool exchanges = world.size() > 1 && setup.device_is_here;  // then the bandwidth is measured
  const double peak =
      exchanges ? matrix_peak(world, setup.device, setup.compute, setup.config.precision.tf32) : 0;
  const Bandwidth bandwidth = exchanges ? bandwidth_of(setup, world) : Bandwidth{};
  const std::string stages = describe_stages(setup);
  const std::string reductions = describe_reductions(setup, plan, world.rank());
  if (world.rank() != 0) return;
  const std::string device = device_note(setup);
  out << describe_setup(setup, plan) << (device.empty() ? "" : str("device    ", device, '\n')) << weights
      << "compute   " << describe_flops(plan.flops) << describe_units(plan.units, setup.pipeline.stages)
      << stages;
  if (exchanges) out << describe_exchange(setup, plan.units, plan.flops, peak, bandwidth);
  out << "memory    of rank 0 of " << setup.ranks() << ":\n" << describe_memory(plan) << reductions;
  if (cluster) out << describe_fit(setup, plan, *cluster);
}

}  // namespace flatshard
