#include "train/run/run_header.h"

#include "runtime/parallel.h"
#include "runtime/text.h"
#include "train/plan/plan_text.h"
#include "train/plan/reductions.h"
#include "train/plan/stage_table.h"

namespace flatshard {

std::string describe_run(const RunHeader& run, bool details) {
  const RunSetup& setup = run.setup;
  const RunPlan& plan = run.plan;
  const std::string device = device_note(setup);
  std::string text = str(
      details ? str("command   ", printable(run.start.command), "\nversion   ", run.start.version, '\n') : "",
      "device    ", setup.device, ", ", counted(setup.ranks(), "rank"), " x ",
      counted(thread_count(), "thread"), ", ", describe(run.peak), '\n',
      device.empty() ? "" : str("          ", device, '\n'), run.hosts, describe_setup(setup, plan),
      plan.products.empty() ? "" : str("products  ", plan.products, '\n'),
      plan.transfers.empty() ? "" : str("transfers ", plan.transfers, '\n'),
      plan.attention.empty() ? "" : str("attention ", plan.attention, '\n'), run.weights, "data      ",
      run.data, "\nrun       ", with_commas(run.steps), " steps, ", describe_flops(plan.flops, setup.model));
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

}  // namespace flatshard
