// The program train on the machine, with models that read images, compared with the CPU.

#include <cmath>

#include "tests/ptx_vm/train_run.h"
#include "tests/test.h"
#include "tests/train/image_workshop.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

Outcome train(const test::Workshop& workshop, const std::string& device,
              const std::vector<std::string>& options, WorkOrder order = WorkOrder::in_order) {
  const std::string run = workshop.file("run"), data = workshop.file("images.tok");
  std::vector<std::string> arguments{workshop.file("config.toml"),
                                     "--run.dir=" + run,
                                     "--run.device=" + device,
                                     "--run.threads=1",
                                     "--model.init_from=" + workshop.file("model"),
                                     "--model.vocab=100",
                                     "--data.train=" + data,
                                     "--data.eval=" + data,
                                     "--data.packing=none",
                                     "--data.max_patches=40",
                                     "--train.steps=2",
                                     "--overwrite"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return outcome_of(train_here(arguments, order), run, device);
}

}  // namespace

TEST_CASE("models that read images have the CPU's losses on CUDA, and the same bits in every stream order") {
  for (const std::string family : {"idefics2", "idefics3", "qwen2_vl", "qwen2_5_vl"}) {
    CAPTURE(family);
    const test::Workshop workshop = test::workshop_with_images("ptx_vm_images_" + family, family);
    struct Run {
      const char* compute;
      double tolerance;  // for sums in another order, of values with 24 bits and with 8
      const char* recompute;
      WorkOrder order;
    };
    for (const auto& [compute, tolerance, recompute, order] :
         {Run{"fp32", 1e-5, "true", WorkOrder::comm_late}, {"bf16", 2e-3, "selective", WorkOrder::random}}) {
      if (compute == std::string("bf16") && family != "idefics3" && family != "qwen2_5_vl") continue;
      CAPTURE(compute);
      const std::string precision = str("--precision.compute=", compute);
      const Outcome cpu = train(workshop, "cpu", {precision}), cuda = train(workshop, "cuda", {precision});
      REQUIRE(cuda.losses.size() == cpu.losses.size());
      for (size_t i = 0; i < cpu.losses.size(); ++i)
        CHECK(std::abs(cuda.losses[i] / cpu.losses[i] - 1) <= tolerance);
      CHECK(train(workshop, "cuda", {precision, str("--train.recompute=", recompute)}, order) == cuda);
    }
  }
}
