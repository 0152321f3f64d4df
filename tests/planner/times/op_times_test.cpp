#include "planner/times/op_times.h"

#include "kernels/gemm.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

double microseconds(const OpCall& op) {
  return 1e6 * op_time(usual_cluster(gpu_model("h200-141gb")), op, 1024).seconds;
}

// Flags: 0 for the gradient of the input, 1 of the weight, which is added to in f32; 2 for the forward pass.
OpCall product(int64_t M, int64_t N, int64_t K, int64_t flags) {
  const auto m = static_cast<double>(M), n = static_cast<double>(N), k = static_cast<double>(K);
  return {.name = "gemm",
          .shape = {M, N, K, flags},
          .dtype = DType::bf16,
          .flops = 2 * m * n * k,
          .bytes = 2 * (m * k + k * n) + (flags == 1 ? 8 : 2) * m * n};
}

OpCall bytes_of(const char* op, double bytes) { return {.name = op, .dtype = DType::bf16, .bytes = bytes}; }

}  // namespace

TEST_CASE("products of a GPU take the times that were measured in steps, from 9 to 440 us") {
  struct Measured {
    OpCall op;
    double microseconds;
  };
  for (const Measured& m : {Measured{product(8192, 5632, 1024, 2), 136.0},
                            {product(5632, 1024, 8192, 1), 141.1},
                            {product(8192, 1024, 5632, 0), 121.2},
                            {product(4096, 32768, 1024, 2), 440.0},
                            {product(32768, 1024, 1024, 1), 138.9},
                            {product(1024, 2816, 1024, 1), 17.5},
                            {product(1024, 1024, 2816, 2), 13.1},
                            {product(1024, 1024, 1024, 1), 9.0}}) {
    CAPTURE(m.microseconds);
    CHECK(microseconds(m.op) == doctest::Approx(m.microseconds).epsilon(0.16));
  }
}

TEST_CASE("an op that memory bounds takes its start and its bytes at the rate of its kernel") {
  CHECK(microseconds(bytes_of("swiglu_forward", 0)) == doctest::Approx(2));
  CHECK(microseconds(bytes_of("swiglu_forward", 4800e6)) == doctest::Approx(2 + 1e3 / 0.85));
  CHECK(microseconds(bytes_of("adamw8bit", 4800e6)) == doctest::Approx(2 + 1e3 / 0.45));
  CHECK(microseconds(bytes_of("rmsnorm_backward", 0)) == doctest::Approx(12));
}

TEST_CASE("a product by the project's kernel has one tile, and its depth is not divided") {
  const GpuModel gpu = gpu_model("h100-80gb");
  const auto share = [&](int64_t M, int64_t N, int64_t K, int64_t flags) {
    return product_efficiency(gpu, M, N, K, flags);
  };
  constexpr int64_t kTransposedB = 2;
  // Large products have the assumed rate, 0.95 of the library's.
  const double library = share(16384, 8192, 8192, kTransposedB);
  CHECK(share(16384, 8192, 8192, kTransposedB | kFlagOwn) == doctest::Approx(0.95 * library));
  // Few tiles leave multiprocessors without work, where the library divides the depth, or takes smaller
  // tiles.
  CHECK(share(256, 256, 65536, kTransposedB | kFlagOwn) < 0.1 * share(256, 256, 65536, kTransposedB));
}

TEST_CASE("products of few rows for each expert fill their tiles in part") {
  const GpuModel gpu = gpu_model("h100-80gb");
  const auto share = [&](int64_t rows_of_expert) {
    constexpr int64_t kExperts = 128;
    return product_efficiency(gpu, kExperts * rows_of_expert, 1536, 2048, 2 | kFlagOwn, kExperts);
  };
  CHECK(share(64) == doctest::Approx(share(128) / 2).epsilon(0.02));
  CHECK(share(160) == doctest::Approx(share(128) * 160 / 256).epsilon(0.02));
  CHECK(share(1024) == doctest::Approx(share(128)).epsilon(0.05));
}
