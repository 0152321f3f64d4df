// Matrix products by the project's kernel for sm_90. It runs on the PTX machine in ptx_vm_tests, and on a GPU
// in flatshard_tests.

#include "kernels/gemm_sm90.h"

#include <algorithm>

#include "bench/kernels/gemm_setting.h"
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

constexpr int64_t kMostExtent = 700;
constexpr double kMostWork = 3e8;  // of a product's whole tiles, so that the PTX machine takes about a second

int64_t rounded_up(int64_t extent, int64_t to) { return (extent + to - 1) / to * to; }

// Around the edges of tiles, or anything.
int64_t extent(Random& random) {
  constexpr int64_t kEdges[] = {1, 16, 64, 128, 192, 256, 384, 512};
  if (below(random, 2) == 0) return below(random, kMostExtent) + 1;
  return std::max<int64_t>(1, kEdges[below(random, std::ssize(kEdges))] + below(random, 3) - 1);
}

// Makes the kernel of the product end with gated units or their gradients, or with rotated heads; `other` is
// the other gate, or the other size of heads.
void end(GemmSetting& p, GemmEnd end, bool other) {
  const bool gradient = end == GemmEnd::gradient;
  p.out = p.in;
  p.with = {.transpose_b = !gradient,
            .bias = !gradient && p.with.bias,
            .own = true,
            .end = end,
            .function = other ? Gate::gelu : Gate::silu,
            .head = other ? 128 : 64};
  p.K = rounded_up(p.K, 8);
  if (end == GemmEnd::gated) p.N = rounded_up(p.N, 16);
  if (end == GemmEnd::rotated) p.N = rounded_up(p.N, p.with.head);
}

constexpr GemmEnd kEnds[] = {GemmEnd::gated, GemmEnd::gradient, GemmEnd::rotated};

GemmSetting draw(Random& random) {
  for (;;) {
    const auto one_in = [&](int64_t n) { return below(random, n) == 0; };
    GemmSetting p{one_in(2) ? DType::bf16 : DType::f16, DType::f32, extent(random), extent(random),
                  extent(random)};
    if (!one_in(3)) p.out = p.in;
    p.with = {.transpose_a = one_in(2),
              .transpose_b = one_in(2),
              .bias = one_in(3),
              .accumulate = one_in(3),
              .aligned = true,
              .own = true};
    if (!p.with.bias && one_in(3)) p.with.alpha = 0.7f;
    p.with.addend = !p.with.accumulate && one_in(3);
    p.N = rounded_up(p.N, 8);
    if (one_in(2)) end(p, kEnds[below(random, std::ssize(kEnds))], one_in(2));
    if (static_cast<double>(rounded_up(p.M, 128) * rounded_up(p.N, 256) * rounded_up(p.K, 64)) <= kMostWork)
      return p;
  }
}

std::vector<std::vector<unsigned char>> bytes_on_gpu(const GemmSetting& p) {
  return test::output_bytes(gemm_case(p), {.device = Device::cuda(0)});
}

// Whether the kernel, and not cuBLASLt, computes this.
bool takes(const GemmSetting& p) {
  const auto stored = [](DType dtype, int64_t rows, int64_t columns) {
    return Memory(Device::cuda(0), rows * columns * size_of(dtype));
  };
  const Memory a = stored(p.in, p.M, p.K), b = stored(p.in, p.N, p.K), c = stored(p.out, p.M, p.N);
  return cuda::multiplies_on_sm90({.c = {c.data(), p.out, {p.M, p.N}, Device::cuda(0)},
                                   .a = {a.data(), p.in, {p.M, p.K}, Device::cuda(0)},
                                   .b = {b.data(), p.in, {p.N, p.K}, Device::cuda(0)},
                                   .transpose_b = true});
}

void check_drawn(uint64_t seed, int settings) {
  Random random(seed);
  for (int i = 0; i < settings; ++i) {
    const GemmSetting p = draw(random);
    const Case c = gemm_case(p);
    CAPTURE(label(c));
    const Values expected = test::output_values(c, Device::cpu());
    in_some_order(i, [&] {
      for (const auto& [name, values] : test::output_values(c, Device::cuda(0))) {
        CAPTURE(name);
        CHECK(max_error(values, expected.at(name)) <= tolerance(c));
      }
    });
  }
}

}  // namespace

TEST_CASE("products on sm_90 match the CPU for any shapes, layouts and addends" *
          doctest::test_suite("gpu")) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  check_drawn(1, 40);
}

TEST_CASE("300 drawn products on sm_90 match the CPU" * doctest::test_suite("nightly") * doctest::skip()) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  check_drawn(2, 300);
}

TEST_CASE("the kernel for sm_90 takes 16-bit products whose rows are aligned" * doctest::test_suite("gpu")) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  CHECK(takes({DType::bf16, DType::bf16, 5, 16, 24}));
  CHECK(takes({DType::f16, DType::f32, 700, 8, 8}));
  CHECK_FALSE(takes({DType::f32, DType::f32, 5, 16, 24}));
  CHECK_FALSE(takes({DType::bf16, DType::bf16, 5, 12, 24}));
  CHECK_FALSE(takes({DType::bf16, DType::bf16, 5, 16, 20}));
}

TEST_CASE("products on sm_90 give the same bits in every order" * doctest::test_suite("gpu")) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  // One block computes six tiles, and goes around its ring of stages for each.
  spare_multiprocessors(Device::cuda(0), multiprocessors(Device::cuda(0)) - 1);
  for (const bool ta : {false, true})
    for (const bool tb : {false, true}) {
      const GemmSetting p{
          DType::bf16,
          ta ? DType::f32 : DType::bf16,
          140,
          520,
          344,
          {.transpose_a = ta, .transpose_b = tb, .accumulate = ta, .aligned = true, .own = true}};
      CAPTURE(label(gemm_case(p)));
      const auto expected = bytes_on_gpu(p);
      for_every_order([&] { CHECK(bytes_on_gpu(p) == expected); });
    }
  spare_multiprocessors(Device::cuda(0), 0);
}

// The op reads what the product has written, and so does the end: their bits are equal.
TEST_CASE("a product on sm_90 that ends with an op has the bits of product and op" *
          doctest::test_suite("gpu")) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  for (const GemmEnd kind : kEnds)
    for (const bool other : {false, true}) {
      GemmSetting p{DType::bf16, DType::bf16, 140, 528, 344, {.bias = true}};
      end(p, kind, other);
      CAPTURE(label(gemm_case(p)));
      const auto joint = bytes_on_gpu(p);
      p.with.apart = true;
      CHECK(bytes_on_gpu(p) == joint);
    }
}

// Neighbors decide neither the bits of a row nor its order of sums.
TEST_CASE("a row of a product on sm_90 depends on that row alone" * doctest::test_suite("gpu")) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  constexpr int64_t kN = 40, kK = 200;
  const auto rows_of = [&](int64_t M, int64_t shift) {
    Case c =
        gemm_case({DType::bf16, DType::f32, M, kN, kK, {.transpose_b = true, .aligned = true, .own = true}});
    for (Arg& arg : c.args)
      if (arg.name == "a")
        arg.fill = [=](int64_t i, double) {
          return static_cast<double>((i / kK + shift) * 31 + i % kK * 17 % 101 - 50) / 64;
        };
    Setup setup(c, {.device = Device::cuda(0)});
    setup.run();
    return setup.values("c");
  };
  // Row r of a product is row r + 130 of another with 130 rows before it, in another tile.
  const std::vector<double> few = rows_of(70, 130), many = rows_of(400, 0);
  CHECK(std::equal(few.begin(), few.end(), many.begin() + 130 * kN));
  const std::vector<double> one = rows_of(1, 130);
  CHECK(std::equal(one.begin(), one.end(), few.begin()));
}
