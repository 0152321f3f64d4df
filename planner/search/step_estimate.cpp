#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "planner/search/setting_search.h"
#include "planner/times/op_times.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

struct NamedPart {
  const char* name;
  double seconds;
  std::string remedy;  // the setting that shortens a wait; "" for work
};

std::vector<NamedPart> work_in(const StepParts& p) {
  return {{"products", p.products, ""},
          {"attention", p.attention, ""},
          {"other ops", p.others, ""},
          {"update", p.update, ""}};
}

std::vector<NamedPart> waits_in(const StepParts& p, const RunSetup& setup) {
  const Config& c = setup.config;
  const bool could_capture =
      setup.ranks() == 1 && setup.device.is_cuda() && setup.why_no_graphs.empty() && !setup.uses_graphs();
  const bool accumulates = setup.batching.micro_steps > 1,
             only_sums = c.parallel.reduction == Reduction::native || c.parallel.expert_ranks > 1,
             gathers_again =
                 c.parallel.strategy == Strategy::full_shard || c.parallel.strategy == Strategy::hybrid;
  // The argument for a micro-batch of twice the size or, if a step has only one, for a batch of twice the
  // size.
  const std::string larger = accumulates
                                 ? str("--train.batch_size_per_device=", 2 * c.train.batch_size_per_device)
                                 : str("--train.total_batch_size=", 2 * c.train.total_batch_size);
  return {{"gathered parameters", p.gathers,
           !accumulates && gathers_again ? "--parallel.strategy=shard_grad_op gathers them once"
                                         : larger + " gathers them half as often"},
          {"sums over ranks", p.reductions,
           !only_sums ? "--parallel.reduction=native sums on the way, with other bits"
                      : larger + " sums half as often"},
          {"tokens of experts", p.experts, "--parallel.expert_ranks=1 gathers the experts instead"},
          {"other stages", p.stages, "more micro-batches, or --parallel.schedule=interleaved"},
          {"copies", p.copies, "no offload and no paging, if it fits"},
          {"the host's updates", p.host, "no offload, if it fits"},
          {"launches", p.launches, could_capture ? "--run.cuda_graphs=true" : larger}};
}

// The parts that take more than half a percent of the step.
std::string listed(const std::vector<NamedPart>& parts, double seconds) {
  constexpr double kShown = 0.005;
  std::string text;
  for (const NamedPart& part : parts)
    if (part.seconds > kShown * seconds)
      text += str(text.empty() ? "" : ", ", part.name, ' ', human_seconds(part.seconds));
  return text;
}

double tokens_of(const RunSetup& setup) {
  return static_cast<double>(setup.batching.total_sequences * setup.seq_len());
}

}  // namespace

std::string describe_rates(const Cluster& c) {
  if (c.cpu)
    return str("measured now: for each rank ", std::round(c.cpu->products * 1e-9), " GFLOP/s of products, ",
               fixed(c.gpu.memory_gbps, 1), " GB/s of copies, and the ops of a smaller model",
               c.node_gpus > 1 ? str("; ", fixed(c.link_gbps, 1), " GB/s between ranks") : "");
  const std::string ops = c.op_table.empty() ? "" : str("ops measured in ", c.op_table, "; the rest is ");
  return str(ops, "not measured: published figures of ", c.gpu.name,
             c.source == c.gpu.name ? "" : " and those of " + c.source, ", assuming up to ",
             std::round(100 * most_of_matrix_peak()), " % of ", c.gpu.matrix_tflops, " TFLOP/s, 85 % of ",
             c.gpu.memory_gbps, " GB/s of memory, ", std::round(100 * c.link_efficiency), " % of ",
             c.link_gbps, " GB/s between GPUs of a node of ", c.node_gpus, ", and ", c.nics_per_node, " x ",
             c.nic_gbps, " GB/s between nodes");
}

double utilization(const SimulatedStep& step, const RunSetup& setup, const RunPlan& plan,
                   const Cluster& cluster) {
  return tokens_of(setup) * plan.flops.causal /
         (setup.ranks() * matrix_rate(cluster, setup.compute, setup.config.precision.tf32) * step.p50);
}

std::string describe_limit(const SimulatedStep& step, const RunSetup& setup) {
  constexpr double kWorthNaming = 0.03;
  const std::vector<NamedPart> waits = waits_in(step.parts, setup);
  const auto longest =
      std::max_element(waits.begin(), waits.end(),
                       [](const NamedPart& a, const NamedPart& b) { return a.seconds < b.seconds; });
  if (longest->seconds > kWorthNaming * step.seconds)
    return str("waits for ", longest->name, ' ', human_seconds(longest->seconds), ": ", longest->remedy);
  std::vector<NamedPart> work = work_in(step.parts);
  std::stable_sort(work.begin(), work.end(),
                   [](const NamedPart& a, const NamedPart& b) { return a.seconds > b.seconds; });
  const bool updates = work.front().seconds == step.parts.update && setup.groups.ranks > 1 &&
                       setup.config.parallel.strategy == Strategy::no_shard;
  return str("work, most of it ", work.front().name, " (", human_seconds(work.front().seconds), "): ",
             updates ? "--parallel.strategy=full_shard divides the update"
             : repeats_blocks(setup.config.train.recompute)
                 ? "--train.recompute=false or selective, if it fits"
             : setup.device.is_cuda() ? "more or faster GPUs"
                                      : "more or faster processors");
}

std::string describe_estimate(const SimulatedStep& step, const RunSetup& setup, const RunPlan& plan,
                              const Cluster& cluster) {
  const std::string waits = listed(waits_in(step.parts, setup), step.seconds);
  const bool several = setup.ranks() > 1;
  return str(
      "estimate  ", human_seconds(step.p50), " per step, of 10 to 90 % of steps ", human_seconds(step.p10),
      " to ", human_seconds(step.p90), "; ", human_count(tokens_of(setup) / step.p50), " tok/s, ",
      std::round(1000 * utilization(step, setup, plan, cluster)) / 10, " % of the ",
      cluster.cpu ? "measured" : "published", " peak\n          ", listed(work_in(step.parts), step.seconds),
      waits.empty() ? "" : "; waits for " + waits,
      several ? str("; exchanges take ", human_seconds(step.exchanged)) : "", "\n          limited by ",
      describe_limit(step, setup), "\n          ", describe_rates(cluster), '\n');
}

}  // namespace flatshard
