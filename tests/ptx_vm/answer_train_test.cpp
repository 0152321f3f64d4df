// The program train on the machine, with losses of whole answers, compared with the CPU.

#include <cmath>

#include "tests/ptx_vm/train_run.h"
#include "tests/test.h"
#include "tests/train/lessons.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

Outcome train(const test::Lessons& lessons, const std::string& device,
              const std::vector<std::string>& options, WorkOrder order = WorkOrder::in_order) {
  const std::string run = lessons.file("run");
  const std::string &loss = options.front(),
                    data = lessons.file(loss == "--train.loss=policy" ? "rollouts.tok"
                                        : loss == "--train.loss=kto"  ? "labels.tok"
                                                                      : "pairs.tok");
  std::vector<std::string> arguments{
      lessons.file("config.toml"), "--run.dir=" + run,    "--run.device=" + device, "--run.threads=1",
      "--data.train=" + data,      "--data.eval=" + data, "--train.eval_every=3",   "--overwrite"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return outcome_of(train_here(arguments, order), run, device);
}

}  // namespace

TEST_CASE("losses of answers are the CPU's on CUDA, with the same bits in every stream order") {
  const test::Lessons lessons("ptx_vm_answers");
  for (const std::vector<std::string>& loss :
       {std::vector<std::string>{"--train.loss=dpo", "--preference.sft_weight=0.5"},
        {"--train.loss=ipo"},
        {"--train.loss=orpo"},
        {"--train.loss=kto", "--train.total_batch_size=4"},
        {"--train.loss=policy", "--policy.kl_weight=0.04", "--policy.mean=answers"},
        {"--train.loss=policy", "--policy.ratio=answer", "--policy.clip_high=0.04"}}) {
    CAPTURE(loss.front());
    const Outcome cpu = train(lessons, "cpu", loss), cuda = train(lessons, "cuda", loss);
    REQUIRE(cuda.losses.size() == cpu.losses.size());
    for (size_t i = 0; i < cpu.losses.size(); ++i)
      CHECK(std::abs(cuda.losses[i] - cpu.losses[i]) <= 1e-4 * std::max(1.0, std::abs(cpu.losses[i])));
    std::vector<std::string> recomputed = loss;
    recomputed.push_back("--train.recompute=true");
    CHECK(train(lessons, "cuda", recomputed, WorkOrder::random) == cuda);
  }
}
