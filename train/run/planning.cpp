#include "train/run/planning.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <ostream>

#include "comm/trace_file.h"
#include "runtime/text.h"
#include "train/measure/peak.h"
#include "train/plan/fit_advice.h"
#include "train/plan/plan_text.h"
#include "train/plan/reductions.h"
#include "train/plan/setting_search.h"
#include "train/plan/stage_table.h"
#include "train/report/trace_picture.h"
#include "train/save/initial_weights.h"
#include "train/simulate/simulated_trace.h"

namespace flatshard {
namespace {

// The cluster of this name; the config then is for its GPUs.
Cluster plan_for(Config& config, const std::string& name) {
  Cluster cluster = cluster_named(name);
  config.run.device = DeviceChoice::cuda;
  if (config.parallel.host_ranks == 0) config.parallel.host_ranks = cluster.node_gpus;
  return cluster;
}

std::string write_timeline(const std::string& folder, const RunSetup& setup, const Cluster& cluster) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check(!error, folder, ": cannot create the folder: ", error.message());
  const SimulatedTrace traced = simulated_trace(setup, cluster);
  std::vector<const Trace*> traces;
  for (const auto& trace : traced.ranks) traces.push_back(trace.get());
  const std::string path = folder + "/timeline";
  const bool complete = write_trace(path + ".json", traces);
  write_trace_picture(path + ".svg", traces, traced.what);
  return str("timeline  ", path, ".svg, ", path, ".json", complete ? "" : ", without the last spans", '\n');
}

}  // namespace

void print_search(LoadedConfig loaded, const PlanFor& wanted, World& world, std::ostream& out) {
  check(world.size() == 1, "--search works in one process: start train without mpirun");
  const Cluster cluster = plan_for(loaded.config, wanted.gpu);
  use_threads(loaded.config.run, world);
  const int ranks = std::max(wanted.ranks, 1);
  const SearchResult result = search_settings(loaded.config, ranks, cluster, SearchScope::all);
  out << describe_search(result, loaded.config, ranks, cluster);
  if (wanted.timeline.empty() || result.best.empty()) return;
  out << write_timeline(wanted.timeline, set_up(result.best.front().config, ranks, {}, Purpose::plan),
                        cluster);
}

void print_plan(LoadedConfig loaded, const PlanFor& wanted, World& world, std::ostream& out) {
  const int ranks = wanted.ranks;
  check((ranks == 0 && wanted.gpu.empty()) || world.size() == 1,
        "--ranks and --for plan in one process: start train without mpirun");
  std::optional<Cluster> cluster;
  if (!wanted.gpu.empty()) cluster = plan_for(loaded.config, wanted.gpu);
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
      << "compute   " << describe_flops(plan.flops, setup.model)
      << describe_units(plan.units, setup.pipeline.stages) << stages;
  if (exchanges) out << describe_exchange(setup, plan.units, plan.flops, peak, bandwidth);
  out << "memory    of rank 0 of " << setup.ranks() << ":\n" << describe_memory(plan) << reductions;
  if (cluster) out << describe_fit(setup, plan, *cluster);
  if (!wanted.timeline.empty()) out << write_timeline(wanted.timeline, setup, *cluster);
}

}  // namespace flatshard
