// The program train on a GPU. ptx_vm/train_test.cpp tests the same without one.

#include <cmath>

#include "runtime/device.h"
#include "tests/test.h"
#include "tests/workshop.h"
#include "train/report/metrics.h"

using namespace flatshard;
using namespace flatshard::test;

namespace {

struct Outcome {
  std::vector<double> losses;  // of the steps, and of the evaluation at the end
  std::string weights;
};

Outcome train(const Workshop& workshop, int ranks, const std::string& options) {
  const Finished run = workshop.train(ranks, options + " --run.dir=run --train.eval_every=10");
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  Outcome outcome{.losses = {}, .weights = after(run.output, "\nweights ")};
  for (const StepMetrics& m : read_metrics(workshop.file("run/metrics.jsonl"))) {
    outcome.losses.push_back(m.loss);
    if (m.eval_loss) outcome.losses.push_back(*m.eval_loss);
  }
  return outcome;
}

}  // namespace

TEST_CASE("training on a GPU has the losses of the CPU" * doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return skip("no GPU");
  struct Run {
    const char *family, *compute;
    double tolerance;  // for sums in another order, of values with 24 bits and with 8
  };
  const Workshop workshop("gpu_run");
  for (const Run& r : {Run{"llama", "fp32", 1e-5}, {"gpt2", "bf16", 1e-3}, {"qwen3", "bf16", 1e-3}}) {
    const std::string options =
        str("--train.steps=10 --model.hidden=32 --model.heads=2 --model.family=", r.family,
            " --precision.compute=", r.compute, " --run.device=");
    CAPTURE(options);
    const Outcome cpu = train(workshop, 1, options + "cpu"), gpu = train(workshop, 1, options + "cuda");
    CHECK(gpu.losses.size() == 11);
    REQUIRE(gpu.losses.size() == cpu.losses.size());
    for (size_t i = 0; i < gpu.losses.size(); ++i)
      CHECK(std::abs(gpu.losses[i] / cpu.losses[i] - 1) <= r.tolerance);
  }
}

TEST_CASE("ranks that share a GPU have the bits of one, with any strategy and recomputation" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return skip("no GPU");
  if (const std::string why = no_ranks_because(); !why.empty()) return skip(why);
  const Workshop workshop("gpu_ranks");
  const std::string options = "--train.steps=5 --run.device=cuda --precision.compute=bf16";
  const Outcome one = train(workshop, 1, options);
  CHECK(one.weights.size() == 64);
  CHECK(train(workshop, 1, options).weights == one.weights);
  CHECK(train(workshop, 1, options + " --train.recompute=true").weights == one.weights);
  for (const int ranks : {2, 4})
    for (const std::string strategy : {"no_shard", "full_shard"})
      CHECK(train(workshop, ranks, options + " --parallel.strategy=" + strategy).weights == one.weights);
  CHECK(train(workshop, 2, options + " --parallel.offload=true").weights == one.weights);
}
