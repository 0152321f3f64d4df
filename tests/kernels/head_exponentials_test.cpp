// The head's loss from exponentials, by the project's kernel for sm_90. It runs on the PTX machine in
// ptx_vm_tests, and on a GPU in flatshard_tests.

#include "kernels/head_exponentials.h"

#include <algorithm>

#include "bench/kernels/head_setting.h"
#include "kernels/gemm.h"
#include "kernels/head.h"
#include "runtime/gpu.h"
#include "tests/kernels/no_sm90.h"
#include "tests/kernels/outputs.h"
#include "tests/kernels/random_draw.h"
#include "tests/ptx_vm/every_order.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;
using namespace flatshard::ptx_vm;
using test::has_no_sm90;

namespace {

using test::below;
using test::Random;

const Device kGpu = Device::cuda(0);

HeadSetting draw(Random& random) {
  const auto one_in = [&](int64_t n) { return below(random, n) == 0; };
  HeadSetting s{.N = 1 + below(random, 200), .C = 8 * (1 + below(random, 20)), .V = 1 + below(random, 700)};
  if (one_in(2)) s.chunk = 1 + below(random, s.N);
  if (one_in(3)) s.valid_vocab = 1 + below(random, s.V);
  s.own = true;
  return s;
}

void check_drawn(uint64_t seed, int settings) {
  Random random(seed);
  for (int i = 0; i < settings; ++i) {
    const DType dtype = below(random, 2) == 0 ? DType::bf16 : DType::f16;
    const HeadSetting s = draw(random);
    const Case c = below(random, 4) == 0 ? head_forward_case(dtype, s) : head_backward_case(dtype, s);
    CAPTURE(label(c));
    const Values expected = test::output_values(c, Device::cpu());
    in_some_order(i, [&] {
      for (const auto& [name, values] : test::output_values(c, kGpu)) {
        CAPTURE(name);
        // Losses are not rounded to 16 bits on the way.
        CHECK(max_error(values, expected.at(name)) <= (name == "loss" ? 2e-5 : tolerance(c)));
      }
    });
  }
}

HeadSetting two_tiles(int64_t chunk = 0) {
  return {.N = 150, .C = 72, .V = 300, .chunk = chunk, .own = true};
}

}  // namespace

TEST_CASE("losses and gradients from exponentials match the CPU" * doctest::test_suite("gpu")) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  check_drawn(6, 24);
}

TEST_CASE("200 drawn losses and gradients from exponentials match the CPU" * doctest::test_suite("nightly") *
          doctest::skip()) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  check_drawn(7, 200);
}

TEST_CASE("losses and gradients from exponentials have the same bits in every order" *
          doctest::test_suite("gpu")) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  const Case c = head_backward_case(DType::bf16, {.N = 70, .C = 40, .V = 530, .own = true});
  const auto bytes = [&] { return test::output_bytes(c, {.device = kGpu}); };
  const auto expected = bytes();
  for_every_order([&] { CHECK(bytes() == expected); });
}

TEST_CASE("a loss from exponentials does not depend on the chunk" * doctest::test_suite("gpu")) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  const auto loss = [](const HeadSetting& s) {
    const Case c = head_backward_case(DType::bf16, s);
    Setup setup(c, {.device = kGpu});
    setup.run();
    return setup.values("loss");
  };
  const std::vector<double> whole = loss(two_tiles());
  for (const int64_t chunk : {1, 64, 149}) CHECK(loss(two_tiles(chunk)) == whole);
}

// Logits of some 1e4 in one column: their exponentials are 0 and 1.
TEST_CASE("losses from exponentials of very different logits are finite and right" *
          doctest::test_suite("gpu")) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  Case c = head_backward_case(DType::bf16, two_tiles());
  for (Arg& arg : c.args)
    if (arg.name == "w")
      arg.fill = [](int64_t i, double unit) { return i / 72 == 280 ? 300 * unit : unit - 0.5; };
  const Values expected = test::output_values(c, Device::cpu());
  const Values found = test::output_values(c, kGpu);
  for (const double loss : found.at("loss")) CHECK(std::isfinite(loss));
  CHECK(max_error(found.at("loss"), expected.at("loss")) <= 2e-5);
}

TEST_CASE("with the project's kernel the head holds two bytes of a logit, and none for a loss alone") {
  constexpr int64_t kTokens = 512, kC = 32, kV = 1000, kTiles = 4;
  const auto plain = [](DType type, Shape shape) { return Tensor{nullptr, type, shape, kGpu}; };
  const auto scratch_of = [&](ProductKernels kernels, bool backward) {
    const ProductKernels before = product_kernels();
    use_product_kernels(kernels);
    Arena scratch("scratch", kGpu);
    StreamSet planning(kGpu, {.planning = true});
    const Tensor x = plain(DType::bf16, {kTokens, kC}), w = plain(DType::bf16, {kV, kC}),
                 per_token = plain(DType::f32, {kTokens}), targets = plain(DType::i32, {kTokens});
    Stream& stream = planning.add("compute");
    if (backward)
      head_loss_backward(stream, scratch,
                         {.dx = x,
                          .dw = plain(DType::f32, {kV, kC}),
                          .loss = per_token,
                          .x = x,
                          .w = w,
                          .targets = targets,
                          .target_weights = per_token});
    else
      head_loss_forward(stream, scratch,
                        {.loss = per_token, .x = x, .w = w, .targets = targets, .target_weights = per_token});
    use_product_kernels(before);
    return scratch.peak();
  };
  constexpr int64_t kStatistics = kTokens * (kTiles * 8 + 4), kLogits = kTokens * kV;
  CHECK(scratch_of(ProductKernels::own, false) <= kStatistics + 1024);
  // The products of the gradients keep the workspace of cuBLASLt in the plan.
  const int64_t workspace = cuda::workspace_bytes(kV, kC);
  CHECK(scratch_of(ProductKernels::own, true) <= kStatistics + 2 * kLogits + workspace + 4096);
  CHECK(scratch_of(ProductKernels::cublaslt, true) >= 6 * kLogits);
}
