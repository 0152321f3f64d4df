// The program train on the machine, with models that read images, compared with the CPU.

#include <cmath>
#include <sstream>

#include "runtime/parallel.h"
#include "tests/ptx_vm/ptx_vm.h"
#include "tests/test.h"
#include "tests/train/image_workshop.h"
#include "train/report/metrics.h"
#include "train/run/train_program.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

// The losses of a run's steps and of the evaluation at its end.
std::vector<double> losses_of(const test::Workshop& workshop, const std::vector<std::string>& options,
                              WorkOrder order = WorkOrder::in_order) {
  const ScopedOptions scope({.stream_order = order});
  std::vector<std::string> arguments{workshop.file("config.toml"),
                                     "--run.dir=" + workshop.file("run"),
                                     "--run.threads=1",
                                     "--model.init_from=" + workshop.file("model"),
                                     "--model.vocab=100",
                                     "--data.train=" + workshop.file("images.tok"),
                                     "--data.eval=" + workshop.file("images.tok"),
                                     "--data.packing=none",
                                     "--data.max_patches=40",
                                     "--train.steps=3",
                                     "--overwrite"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const int threads = thread_count();
  std::istringstream in;
  std::ostringstream out, err;
  const int exit_code = run_train(arguments, {in, out, err});
  set_thread_count(threads);
  INFO(out.str(), err.str());
  REQUIRE(exit_code == 0);
  for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
  const std::vector<StepMetrics> steps = read_metrics(workshop.file("run/metrics.jsonl"));
  std::vector<double> losses;
  for (const StepMetrics& m : steps) losses.push_back(m.loss);
  losses.push_back(steps.back().eval_loss.value());
  return losses;
}

}  // namespace

TEST_CASE("models that read images have the CPU's losses on CUDA, and the same bits in every stream order") {
  for (const std::string family : {"idefics2", "idefics3", "qwen2_vl", "qwen2_5_vl"}) {
    CAPTURE(family);
    const test::Workshop workshop = test::workshop_with_images("ptx_vm_images_" + family, family);
    for (const auto& [compute, tolerance] : {std::pair{std::string("fp32"), 1e-5}, {"bf16", 2e-3}}) {
      CAPTURE(compute);
      const std::string precision = "--precision.compute=" + compute;
      const std::vector<double> cpu = losses_of(workshop, {precision, "--run.device=cpu"}),
                                cuda = losses_of(workshop, {precision, "--run.device=cuda"});
      REQUIRE(cuda.size() == cpu.size());
      for (size_t i = 0; i < cpu.size(); ++i) CHECK(std::abs(cuda[i] / cpu[i] - 1) <= tolerance);
      for (const auto& [recompute, order] :
           {std::pair{"true", WorkOrder::comm_late}, {"selective", WorkOrder::random}})
        CHECK(losses_of(workshop, {precision, "--run.device=cuda", str("--train.recompute=", recompute)},
                        order) == cuda);
    }
  }
}
