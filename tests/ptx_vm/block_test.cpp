// The launches of a block of a transformer, and the bytes that its kernels move. Widths are an eighth of
// those of the models, with heads of the same size: neither limit depends on them.

#include "kernels/gemm.h"
#include "model/lora.h"
#include "model/quantization.h"
#include "ptx_vm/ptx_vm.h"
#include "tests/ptx_vm/block_run.h"
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
  use_product_kernels(ProductKernels::cublaslt);
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

// The products read and write each activation once for each product that needs it: y, dx, and the residual
// stream where it is added; x also for u and da; dy also for db and du. With adapters apart, y and dx are
// read and written twice more.
TEST_CASE("adapters on 4-bit weights take no pass of their own over the outputs of their layers") {
  constexpr int64_t kRank = 16, C = 512, D = 128, kQuery = 4 * D, kKey = D, F = 1792;
  const LoraConfig lora{.rank = kRank};
  ModelConfig config = small("llama", C, 4, 1, F);
  Arena planning("model", Device::cpu());
  config.adapters = choose_adapters(lora, Model(config, planning)).adapters;
  config.quantized = choose_quantized({.base = FourBitKind::nf4}, lora, Model(config, planning)).weights;
  BlockRun run(config, kTokens);
  const Counts forward = run.count_forward(), backward = run.count_backward();

  struct Group {
    int64_t in, out, layers;
    bool adds_residual, has_spare_dy;
  };
  int64_t forward_elements = 0, backward_elements = 0, gradients = 0;
  for (const Group& g : {Group{C, kQuery + 2 * kKey, 3, false, true},
                         {kQuery, C, 1, true, false},
                         {C, 2 * F, 2, false, true},
                         {F, C, 1, true, true}}) {
    const int64_t ranks = g.layers * kRank, w = (g.in + ranks) * g.out, a = ranks * g.in;
    const int64_t u = kTokens * ranks, x = kTokens * g.in, y = kTokens * g.out;
    forward_elements += (x + a + u) + (x + u + w + y + (g.adds_residual ? y : 0));
    const int64_t db = y + u, du = y + kRank * g.out + u, da = x + u;
    const int64_t dx = y + g.in * g.out + x;
    backward_elements += db + du + da + dx + (g.has_spare_dy ? u + a : u + a + 2 * x);
    gradients += a + kRank * g.out;
  }
  CHECK(forward.products() == 4 * 2);
  CHECK(forward.product_bytes() == static_cast<uint64_t>(2 * forward_elements));
  CHECK(backward.products() == 2 * 7 + 4 * 2 + 1);
  CHECK(backward.product_bytes() == static_cast<uint64_t>(2 * backward_elements + 4 * gradients));
  for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
}
