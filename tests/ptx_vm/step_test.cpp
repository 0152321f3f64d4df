// The bytes that the kernels of a training step move.

#include "ptx_vm/ptx_vm.h"
#include "tests/ptx_vm/step_run.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

TEST_CASE("a training step of Llama, Qwen2.5 or Qwen3 stays within its bytes") {
  constexpr int64_t kTokens = 64;
  constexpr double kMostBytes = 1.15;  // over the least bytes of the formulas
  for (const std::string family : {"llama", "qwen2", "qwen3"}) {
    CAPTURE(family);
    StepRun run({.family = family,
                 .layers = 1,
                 .hidden = 128,
                 .heads = 1,
                 .kv_heads = 1,
                 .head_dim = 128,
                 .ffn = 256,
                 .vocab = 64,
                 .max_positions = kTokens},
                kTokens);
    const auto bytes = static_cast<double>(run.count().launch_bytes());
    MESSAGE(family, ": bytes ", bytes / run.least_bytes());
    CHECK(bytes >= run.least_bytes());
    CHECK(bytes <= kMostBytes * run.least_bytes());
    for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
  }
}
