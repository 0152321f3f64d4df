// The launches of a block of a transformer, and the bytes that its kernels move. Widths are an eighth of
// those of the models, with heads of the same size: neither limit depends on them.

#include "tests/ptx_vm/block_run.h"
#include "tests/ptx_vm/ptx_vm.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

constexpr int64_t kTokens = 192;
constexpr double kMostBytes = 1.15;  // over the least bytes of the formulas

struct Limits {
  ModelConfig config;
  uint64_t forward, backward;  // launches
};

ModelConfig small(const char* family, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t ffn) {
  return resolved({.family = family,
                   .layers = 1,
                   .hidden = hidden,
                   .heads = heads,
                   .kv_heads = kv_heads,
                   .head_dim = 128,
                   .ffn = ffn,
                   .vocab = 8,
                   .max_positions = kTokens});
}

}  // namespace

TEST_CASE("a block stays within the launches and the bytes of its family") {
  for (const Limits& most : {Limits{small("llama", 512, 4, 1, 1792), 9, 20},
                             {small("qwen2", 512, 4, 2, 1792), 9, 20},
                             {small("qwen3", 512, 4, 2, 1536), 9, 20},
                             {small("gemma2", 512, 4, 2, 1792), 11, 20},
                             {small("olmo2", 512, 4, 4, 1792), 9, 18}}) {
    CAPTURE(most.config.family);
    BlockRun run(most.config, kTokens);
    const Counts forward = run.count_forward(), backward = run.count_backward();
    const BlockBytes least = least_bytes(most.config, kTokens);
    MESSAGE(most.config.family, ": ", forward.launches(), " and ", backward.launches(), " launches, bytes ",
            static_cast<double>(forward.launch_bytes()) / least.forward, " and ",
            static_cast<double>(backward.launch_bytes()) / least.backward);
    CHECK(forward.launches() <= most.forward);
    CHECK(backward.launches() <= most.backward);
    CHECK(static_cast<double>(forward.launch_bytes() + backward.launch_bytes()) <=
          kMostBytes * (least.forward + least.backward));
    for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
  }
}
