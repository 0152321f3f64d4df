#include "tests/ptx_vm/train_run.h"

#include <sstream>

#include "runtime/parallel.h"
#include "tests/test.h"
#include "tools/programs.h"
#include "train/report/metrics.h"

namespace flatshard::ptx_vm {

test::Finished train_here(const std::vector<std::string>& arguments, WorkOrder order) {
  const ScopedOptions scope({.stream_order = order});
  const int threads = thread_count();
  std::istringstream in;
  std::ostringstream out, err;
  const int exit_code = run_train(arguments, {in, out, err});
  set_thread_count(threads);
  for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
  return {exit_code, out.str() + err.str()};
}

Outcome outcome_of(const test::Finished& run, const std::string& folder, const std::string& device) {
  INFO(run.output);
  REQUIRE(run.exit_code == 0);
  CHECK(run.output.find("device    " + device) != std::string::npos);
  Outcome outcome{.losses = {}, .weights = test::after(run.output, "weights ")};
  CHECK(outcome.weights.size() == 64);
  const std::vector<StepMetrics> steps = read_metrics(folder + "/metrics.jsonl");
  for (const StepMetrics& m : steps) outcome.losses.push_back(m.loss);
  outcome.losses.push_back(steps.back().eval_loss.value());
  return outcome;
}

}  // namespace flatshard::ptx_vm
