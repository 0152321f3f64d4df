#include "planner/times/op_times.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

// Flags of products: 1 and 2 transpose an operand.
OpCall product(int64_t M, int64_t N, int64_t K, int64_t flags) {
  const auto flops = static_cast<double>(2 * M * N * K);
  return {.name = "gemm", .shape = {M, N, K, flags}, .flops = flops, .bytes = 1};
}

OpCall norm(int64_t rows, DType dtype = DType::f32) {
  return {.name = "rmsnorm_forward", .shape = {rows, 64}, .dtype = dtype, .bytes = static_cast<double>(rows)};
}

CpuRates rates() {
  return {.copies = 1e9,
          .ops = {{product(128, 128, 128, 0), 2 * 128. * 128 * 128 / 1e9},
                  {product(1024, 1024, 1024, 0), 2 * 1024. * 1024 * 1024 / 4e9},
                  {product(128, 128, 128, 1), 2 * 128. * 128 * 128 / 0.5e9},
                  {norm(1000), 1e-3}}};
}

double seconds(const OpCall& op) { return cpu_op_time(rates(), op, 1).seconds; }
double rate(const OpCall& op) { return op.flops / seconds(op); }

}  // namespace

TEST_CASE("a product has a rate between those of similar products, nearer to the nearer one") {
  CHECK(rate(product(128, 128, 128, 0)) == doctest::Approx(1e9).epsilon(0.02));
  CHECK(rate(product(1024, 1024, 1024, 0)) == doctest::Approx(4e9).epsilon(0.05));
  const double near_small = rate(product(192, 192, 192, 0)), near_large = rate(product(768, 768, 768, 0));
  CHECK(near_small > 1e9);
  CHECK(near_small < 2e9);
  CHECK(near_large > 2e9);
  CHECK(near_large < 4e9);
  // Operands in another order have a rate of their own.
  CHECK(rate(product(1024, 1024, 1024, 1)) == doctest::Approx(0.5e9).epsilon(0.001));
}

TEST_CASE("a 4-bit product takes the time of a product and of decoding its weight") {
  CpuRates with_decoding = rates();
  with_decoding.ops.push_back({{.name = "dequantize_four_bit", .shape = {1000}, .bytes = 2500}, 4e-6});
  OpCall op = product(128, 256, 128, 0);
  op.name = "four_bit_product";
  CHECK(cpu_op_time(with_decoding, op, 1).seconds ==
        doctest::Approx(seconds(product(128, 256, 128, 0)) + 256 * 128 * 4e-9));
}

TEST_CASE("another op takes the time of its bytes, at the rate that was timed and no faster than memory") {
  CHECK(seconds(norm(1000)) == doctest::Approx(1e-3));
  CHECK(seconds(norm(5000)) == doctest::Approx(5e-3));
  CpuRates slow = rates();
  slow.copies = 1e5;
  CHECK(cpu_op_time(slow, norm(1000), 1).seconds == doctest::Approx(1000 / 1.16e5));
  // Nothing was timed in 16 bits.
  CHECK(seconds(norm(1000, DType::bf16)) == doctest::Approx(1000 / 0.85e9));
}
