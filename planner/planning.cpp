#include "planner/planning.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <ostream>

#include "comm/trace_file.h"
#include "planner/files/cluster_file.h"
#include "planner/measure/measured_machines.h"
#include "planner/search/fit_advice.h"
#include "planner/search/setting_search.h"
#include "planner/simulate/simulated_step.h"
#include "runtime/text.h"
#include "train/measure/bandwidth.h"
#include "train/plan/plan_text.h"
#include "train/plan/reductions.h"
#include "train/plan/saved_plan.h"
#include "train/plan/stage_table.h"
#include "train/report/trace_picture.h"
#include "train/run/matrix_peak.h"
#include "train/save/initial_weights.h"

namespace flatshard {
namespace {

constexpr const char* kTheseProcessors = "cpu";  // value of --for

// Rates that were measured on the ranks of this job.
struct RankRates {
  MatrixPeak peak;
  Bandwidth bandwidth;
};

// Collective.
RankRates measure_ranks(const RunSetup& setup, World& world) {
  return {find_matrix_peak(setup, world), bandwidth_of(setup, world)};
}

struct PlanMachines {
  Cluster cluster;
  std::optional<RankRates> rates{};  // set if the machines are those of this job
};

// The machines of this job, measured for an option. Collective.
PlanMachines machines_of_job(const RunSetup& setup, World& world, const std::string& option) {
  RankRates rates = measure_ranks(setup, world);
  const std::optional<Cluster> cluster = measured_machines(setup, world, rates.peak, rates.bandwidth);
  check(cluster.has_value(), option, ": ",
        setup.device.is_cuda() ? str("no figures of ", rates.peak.gpu,
                                     " are published: describe the machines in a cluster file, with --for")
                               : "the ops of models that read images are not timed");
  // It is at least the rate measured first.
  if (cluster->cpu) rates.peak.measured = cluster->cpu->products * world.size();
  return {*cluster, rates};
}

// The machines of --for. Collective.
PlanMachines machines_for(const RunSetup& setup, const PlanFor& wanted, World& world) {
  return wanted.cluster ? PlanMachines{*wanted.cluster}
                        : machines_of_job(setup, world, str("--for ", kTheseProcessors));
}

// A plan for other machines than these is made by one process.
void check_processes(const PlanFor& wanted, const World& world, const char* what) {
  check(wanted.ranks == 0 || world.size() == 1, what, " one process: start train without mpirun");
}

// `plan` is that of rank 0.
std::string write_saved_plan(const RunSetup& setup, const RunPlan& plan, const Cluster& cluster) {
  const std::string& folder = setup.config.run.dir;
  const SavedPlan saved{.seconds = simulate_step(setup, cluster).p50,
                        .machines = cluster.source,
                        .memory = plan.memory,
                        .settings = planned_settings(setup),
                        .timeline = simulated_trace(setup, cluster)};
  save_plan(folder, saved);
  return str("saved     ", plan_path(folder), ": ", human_seconds(saved.seconds), " per step\n");
}

std::string write_timeline(const std::string& folder, const RunSetup& setup, const Cluster& cluster) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  check(!error, folder, ": cannot create the folder: ", error.message());
  const StepTimeline traced = simulated_trace(setup, cluster);
  std::vector<const Trace*> traces;
  for (const auto& trace : traced.ranks) traces.push_back(trace.get());
  const std::string path = folder + "/timeline";
  const bool complete = write_trace(path + ".json", traces);
  write_trace_picture(path + ".svg", traces, traced.what);
  return str("timeline  ", path, ".svg, ", path, ".json", complete ? "" : ", without the last spans", '\n');
}

}  // namespace

void plan_for_machines(PlanFor& wanted, Config& config) {
  if (wanted.machines.empty()) return;
  if (wanted.machines == kTheseProcessors) {
    check(wanted.ranks == 0, "--for ", kTheseProcessors,
          " measures the processors of the ranks that run this command: start ", wanted.ranks,
          ", and leave out --ranks");
    config.run.device = DeviceChoice::cpu;
    return;
  }
  config.run.device = DeviceChoice::cuda;
  wanted.ranks = std::max(wanted.ranks, 1);
  wanted.cluster = cluster_named(wanted.machines);
  if (config.parallel.host_ranks == 0) config.parallel.host_ranks = wanted.cluster->node_gpus;
}

void print_search(const RunSetup& setup, const PlanFor& wanted, World& world, std::ostream& out) {
  check_processes(wanted, world, "--search works in");
  use_threads(setup.config.run, world);
  const Cluster cluster = machines_for(setup, wanted, world).cluster;
  if (world.rank() != 0) return;
  Config config = setup.config;
  if (config.parallel.host_ranks == 0) config.parallel.host_ranks = cluster.node_gpus;
  const SearchResult result = search_settings(config, setup.ranks(), cluster, SearchScope::all);
  out << describe_search(result, config, setup.ranks(), cluster, wanted.verbose);
  if (wanted.timeline.empty() || result.best.empty()) return;
  out << write_timeline(wanted.timeline, set_up(result.best.front().config, setup.ranks(), {}, Purpose::plan),
                        cluster);
}

void print_plan(const RunSetup& setup, const PlanFor& wanted, World& world, std::ostream& out) {
  check_processes(wanted, world, "--ranks and --for plan in");
  check(!wanted.saves || wanted.ranks == 0 || !wanted.machines.empty(), "--save of a plan for ", wanted.ranks,
        " ranks needs --for: the machines that they are on");
  use_threads(setup.config.run, world);  // the workspace of ops depends on the threads
  std::optional<PlanMachines> machines;
  if (!wanted.machines.empty()) machines = machines_for(setup, wanted, world);
  check(!wanted.saves || machines || setup.device_is_here,
        "--save measures the GPUs of this job, and there are none: name other machines with --for");
  if (wanted.saves && !machines) machines = machines_of_job(setup, world, "--save");
  const std::string weights = describe_initial_weights(setup, world);
  const RunPlan plan = plan_run(setup, world.rank());
  std::optional<RankRates> rates = machines ? machines->rates : std::nullopt;
  if (!rates && world.size() > 1 && setup.device_is_here) rates = measure_ranks(setup, world);
  const std::string stages = describe_stages(setup);
  const ReductionText reductions = describe_reductions(setup, plan, world.rank());
  if (world.rank() != 0) return;
  const std::string device = device_note(setup);
  out << reductions.exact << describe_setup(setup, plan)
      << (device.empty() ? "" : str("device    ", device, '\n')) << weights << "compute   "
      << describe_flops(plan.flops, setup.model) << describe_units(plan.units, setup.pipeline.stages)
      << stages;
  if (rates) out << describe_exchange(setup, plan.units, plan.flops, rates->peak.measured, rates->bandwidth);
  out << "memory    of rank 0 of " << setup.ranks() << ":\n" << describe_memory(plan) << reductions.table;
  if (!wanted.machines.empty()) out << describe_fit(setup, plan, machines->cluster);
  if (!wanted.timeline.empty()) out << write_timeline(wanted.timeline, setup, machines->cluster);
  if (wanted.saves) out << write_saved_plan(setup, plan, machines->cluster);
}

}  // namespace flatshard
