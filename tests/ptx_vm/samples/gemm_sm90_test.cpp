// A matrix product on tensor cores of sm_90 against a product in double. In ptx_vm_tests it runs on the PTX
// machine, in flatshard_tests of a build with CUDA on a GPU.

#include "tests/ptx_vm/samples/gemm_sm90.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/dtype.h"
#include "tests/ptx_vm/device_array.h"
#include "tests/ptx_vm/every_order.h"
#include "tests/ptx_vm/samples/numbers.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

// A result is rounded to bf16, by at most 2^-8 of it. Before, K products below one were added, each sum
// rounded to f32 by at most 2^-24 of what is below K.
constexpr double kRounding = 0x1p-8, kSumRounding = 0x1p-24;

struct Size {
  int64_t M, N, K;
};
// Full tiles; a nearly empty one; edges in every dimension; more steps than the ring has stages.
constexpr Size kSizes[] = {{128, 128, 64}, {1, 8, 8}, {130, 136, 72}, {200, 264, 328}, {64, 128, 640}};

std::vector<bf16> on_device(const Size& s, const std::vector<bf16>& a, const std::vector<bf16>& b) {
  const DeviceArray<bf16> x(a), w(b), y(static_cast<size_t>(s.M * s.N));
  StreamGroup streams(Device::cuda(0));
  Stream& stream = streams.add("compute");
  const auto tensor = [](bf16* data, int64_t rows, int64_t columns) {
    return Tensor{data, DType::bf16, {rows, columns}, Device::cuda(0)};
  };
  gemm_sm90(stream, tensor(y.data, s.M, s.N), tensor(x.data, s.M, s.K), tensor(w.data, s.N, s.K));
  stream.sync();
  return y.values();
}

double product(const Size& s, const std::vector<bf16>& a, const std::vector<bf16>& b, int64_t row,
               int64_t column) {
  double sum = 0;
  for (int64_t k = 0; k < s.K; ++k)
    sum += static_cast<double>(static_cast<float>(a[static_cast<size_t>(row * s.K + k)])) *
           static_cast<double>(static_cast<float>(b[static_cast<size_t>(column * s.K + k)]));
  return sum;
}

}  // namespace

TEST_CASE("an sm_90 tensor-core product equals a product in double, edges included" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0 || !gemm_sm90_runs()) return test::skip("no GPU of sm_90");
  for (const Size& s : kSizes) {
    CAPTURE(s.M);
    CAPTURE(s.N);
    CAPTURE(s.K);
    const std::vector<bf16> a = numbers(s.M * s.K, 1), b = numbers(s.N * s.K, 2);
    for_every_order_of_sums([&] {
      const std::vector<bf16> y = on_device(s, a, b);
      REQUIRE(y.size() == static_cast<size_t>(s.M * s.N));
      double worst = 0;  // of the errors, as a share of what is allowed
      for (int64_t i = 0; i < s.M * s.N; ++i) {
        const double exact = product(s, a, b, i / s.N, i % s.N);
        const auto size = static_cast<double>(s.K);
        const double allowed = kRounding * std::abs(exact) + kSumRounding * size * size;
        worst = std::max(
            worst,
            std::abs(static_cast<double>(static_cast<float>(y[static_cast<size_t>(i)])) - exact) / allowed);
      }
      CHECK(worst <= 1);
    });
  }
}

TEST_CASE("an sm_90 tensor-core product gives the same bits in every order, without bank conflicts" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0 || !gemm_sm90_runs()) return test::skip("no GPU of sm_90");
  const Size s{130, 136, 328};
  const std::vector<bf16> a = numbers(s.M * s.K, 3), b = numbers(s.N * s.K, 4);
  const std::vector<bf16> first = on_device(s, a, b);
  for_every_order([&] {
    const std::vector<bf16> again = on_device(s, a, b);
    REQUIRE(again.size() == first.size());
    CHECK(std::memcmp(again.data(), first.data(), first.size() * sizeof(bf16)) == 0);
  });
  expect_no_bank_conflicts([&] { on_device(s, a, b); });
}
