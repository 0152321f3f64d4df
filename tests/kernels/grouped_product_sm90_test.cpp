// Products of segments of rows by the kernel for sm_90. It runs on the PTX machine in ptx_vm_tests, and on a
// GPU in flatshard_tests.

#include "kernels/gemm.h"
#include "kernels/grouped_product.h"
#include "runtime/gpu.h"
#include "tests/kernels/grouped_draw.h"
#include "tests/kernels/no_sm90.h"
#include "tests/ptx_vm/every_order.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;
using namespace flatshard::ptx_vm;
using test::has_no_sm90;

namespace {

void check_drawn(uint64_t seed, int settings) {
  test::Random random(seed);
  for (int i = 0; i < settings; ++i) {
    const Case c = grouped_case(test::draw(random, test::below(random, 2) == 0 ? DType::bf16 : DType::f16));
    in_some_order(i, [&] { test::check_values(c, Device::cuda(0)); });
  }
}

}  // namespace

TEST_CASE("products of segments on sm_90 have the values of their formula" * doctest::test_suite("gpu")) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  check_drawn(4, 40);
}

TEST_CASE("300 drawn products of segments on sm_90 have the values of their formula" *
          doctest::test_suite("nightly") * doctest::skip()) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  check_drawn(5, 300);
}

TEST_CASE("products of segments on sm_90 give the same bits in every order" * doctest::test_suite("gpu")) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  const Device device = Device::cuda(0);
  spare_multiprocessors(device, multiprocessors(device) - 2);  // two blocks share the segments
  for (GroupedSetting s :
       {GroupedSetting{DType::bf16, GroupedKind::forward, {128, 0, 64, 192}, 64, 0, 272, 136},
        GroupedSetting{DType::bf16, GroupedKind::input_gradient, {0, 192, 64}, 0, 0, 136, 72},
        GroupedSetting{DType::bf16, GroupedKind::weight_gradient, {64, 0, 320}, 64, 136, 264},
        GroupedSetting{.dtype = DType::bf16,
        .kind = GroupedKind::forward,
        .rows = {128, 0, 192},
        .N = 272,
        .K = 344,
        .tokens = 50},
        GroupedSetting{.dtype = DType::bf16,
        .kind = GroupedKind::weight_gradient,
        .rows = {64, 384},
        .M = 136,
        .N = 264,
        .tokens = 50}}) {
    const Case c = grouped_case(s);
    CAPTURE(label(c));
    const auto bytes = [&] { return test::output_bytes(c, {.device = device}); };
    const auto expected = bytes();
    for_every_order([&] { CHECK(bytes() == expected); });
  }
  spare_multiprocessors(device, 0);
}

// What is in a segment does not depend on those around it.
TEST_CASE("a segment has the same bits among any others" * doctest::test_suite("gpu")) {
  if (has_no_sm90()) return test::skip("no GPU of sm_90");
  constexpr int64_t kRows = 128, kN = 40, kK = 72;
  // Values of a depend on the row of the segment, those of b on the element of its matrix.
  const auto segment = [&](const std::vector<int64_t>& rows, size_t which) {
    Case c = grouped_case({DType::bf16, GroupedKind::forward, rows, 0, 0, kN, kK});
    int64_t first = 0;
    for (size_t e = 0; e < which; ++e) first += rows[e];
    for (Arg& arg : c.args) {
      if (arg.name == "a")
        arg.fill = [=](int64_t i, double) {
          return static_cast<double>((i - first * kK) * 37 % 101) / 50 - 1;
        };
      if (arg.name == "b")
        arg.fill = [=](int64_t i, double) {
          return static_cast<double>((i - static_cast<int64_t>(which) * kN * kK) * 53 % 97) / 50 - 1;
        };
    }
    Setup setup(c, {.device = Device::cuda(0)});
    setup.run();
    const std::vector<double> all = setup.values("c");
    return std::vector<double>(all.begin() + first * kN, all.begin() + (first + kRows) * kN);
  };
  const std::vector<double> alone = segment({kRows}, 0);
  CHECK(segment({64, kRows, 0}, 1) == alone);
  CHECK(segment({0, 192, 0, kRows, 64}, 3) == alone);
}
