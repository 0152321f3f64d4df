#include "kernels/gemm.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "bench/kernels/gemm_setting.h"
#include "kernels/gemm_rows.h"
#include "kernels/gemm_widened.h"
#include "runtime/parallel.h"
#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

std::string error_of_shapes(const Shape& c, const Shape& a, const Shape& b, DType c_dtype = DType::f32) {
  StreamSet streams(Device::cpu(), {.planning = true});
  Arena scratch("scratch", Device::cpu());
  return test::error_of([&] {
    gemm(streams.add("compute"), scratch,
         {.c = {nullptr, c_dtype, c, {}},
          .a = {nullptr, DType::f32, a, {}},
          .b = {nullptr, DType::f32, b, {}}});
  });
}

// c of M rows; the rows of a but for `kept` depend on `others`.
std::vector<double> with_neighbors(int64_t kept, int64_t others, const bench::GemmSetting& p) {
  Case c = bench::gemm_case(p);
  for (bench::Arg& arg : c.args)
    if (arg.name == "a")
      arg.fill = [=](int64_t i, double) {
        const int64_t row = i / p.K, seed = row == kept ? 0 : others;
        return static_cast<double>(((row + seed) * 131 + i % p.K * 17) % 257 - 128) / 96;  // sums are rounded
      };
  bench::Setup setup(c, {.device = Device::cpu()});
  setup.run();
  return setup.values("c");
}

}  // namespace

TEST_CASE("gemm and its bias gradient match PyTorch in f32 and bf16") {
  for (const Case& c : bench::golden_cases("gemm")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str(c.op, '_', c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("gemm reports shapes that do not fit") {
  CHECK(error_of_shapes({2, 4}, {2, 3}, {4, 4}) == "gemm: c (2, 4) = a (2, 3) b (4, 4): shapes do not fit");
  CHECK(error_of_shapes({2, 5}, {2, 3}, {3, 4}) == "gemm: c (2, 5) = a (2, 3) b (3, 4): shapes do not fit");
  CHECK(error_of_shapes({2, 4}, {2, 3}, {12}) == "gemm: a (2, 3), b (12) and c (2, 4) must be matrices");
  CHECK(error_of_shapes({2, 4}, {2, 3}, {3, 4}, DType::bf16) ==
        "gemm: c is bf16, a is f32, b is f32; a and b must have the same dtype, c that dtype or f32");
}

TEST_CASE("gemm refuses a factor beside a bias") {
  Arena scratch("scratch", Device::cpu());
  StreamSet streams(Device::cpu(), {.planning = true});
  const Tensor c{nullptr, DType::f32, {2, 4}, {}};
  CHECK(test::error_of([&] {
          gemm(streams.add("compute"), scratch,
               {.c = c,
                .a = c.view({2, 4}),
                .b = Tensor{nullptr, DType::f32, {4, 4}, {}},
                .bias = Tensor{nullptr, DType::f32, {4}, {}},
                .alpha = 0.5f});
        }) == "gemm: alpha is 0.5, must be 1 with a bias");
}

TEST_CASE("gemm propagates NaN and infinity, only within their row") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  float a[4] = {NAN, 1, 2, INFINITY}, b[4] = {1, 1, 1, 1}, c[4] = {};
  const Gemm g{.c = tensor_of(c, {2, 2}), .a = tensor_of(a, {2, 2}), .b = tensor_of(b, {2, 2})};
  Arena scratch("scratch", Device::cpu());
  StreamSet planning(Device::cpu(), {.planning = true});
  gemm(planning.add("compute"), scratch, g);
  scratch.commit();
  gemm(stream, scratch, g);
  CHECK(std::isnan(c[0]));
  CHECK(c[2] == INFINITY);
}

// Its bits depend on the shapes and on its place besides: the kernels of oneDNN for the ends of a tile sum in
// another order than those for its middle. Those of a GPU are in gemm_sm90_test.cpp.
TEST_CASE("a row of a product does not depend on the values of other rows") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t M : {2, 16, 17, 70, 300})
      for (const bool tb : {false, true}) {
        const bench::GemmSetting p{dtype, dtype, M, 170, 1030, {.transpose_b = tb}};
        for (const int64_t row : {int64_t{0}, M / 2, M - 1}) {
          CAPTURE(dtype);
          CAPTURE(M);
          CAPTURE(tb);
          CAPTURE(row);
          const std::vector<double> one = with_neighbors(row, 1, p), other = with_neighbors(row, 5, p);
          CHECK(one != other);
          CHECK(
              std::equal(one.begin() + row * p.N, one.begin() + (row + 1) * p.N, other.begin() + row * p.N));
        }
      }
}

TEST_CASE("several threads may run one gemm shape at once on their own matrices") {
  constexpr int64_t n = 24;
  constexpr int kCalls = 20000;  // the race needs two calls within a few instructions
  std::atomic<int> wrong = 0;
  parallel_for(2, [&](int64_t task) {
    StreamSet streams(Device::cpu()), planning(Device::cpu(), {.planning = true});
    Stream& stream = streams.add("compute");
    const float value = static_cast<float>(task + 1);
    std::vector<float> a(n * n, value), b(n * n, 1.0f), c(n * n), expected(n * n, value * n);
    const Gemm g{
        .c = tensor_of(c.data(), {n, n}), .a = tensor_of(a.data(), {n, n}), .b = tensor_of(b.data(), {n, n})};
    Arena scratch("scratch", Device::cpu());
    gemm(planning.add("compute"), scratch, g);
    scratch.commit();
    for (int call = 0; call < kCalls; ++call) {
      std::fill(c.begin(), c.end(), -1.0f);
      gemm(stream, scratch, g);
      wrong += c != expected;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a widened tile is the f32 product of its values, rounded once") {
  static std::deque<WidenedTile> tiles;  // a product stays for the life of the program
  // K in blocks: one, a whole number of them, and a shorter one at the end.
  for (const int64_t K : {5, 1024, 2048, 2051})
    for (const DType out : {DType::bf16, DType::f32})
      for (int variant = 0; variant < 12; ++variant) {
        constexpr int64_t M = 7, N = 21, kGap = 3;  // between the rows of the matrices that the tile lies in
        const bool transpose_a = variant & 1, transpose_b = variant & 2, adds = variant >= 4,
                   has_bias = adds && variant < 8;
        const float alpha = variant < 8 ? 1.0f : 0.375f;
        CAPTURE(K);
        CAPTURE(out);
        CAPTURE(variant);
        const int64_t lda = (transpose_a ? M : K) + kGap, ldb = (transpose_b ? K : N) + kGap, ldc = N + kGap;
        const auto small = [](int64_t i) { return static_cast<float>(i * 7 % 11 - 5); };  // sums are exact
        std::vector<bf16> a((transpose_a ? K : M) * lda), b((transpose_b ? N : K) * ldb), bias(N);
        for (size_t i = 0; i < a.size(); ++i) a[i] = bf16(small(i));
        for (size_t i = 0; i < b.size(); ++i) b[i] = bf16(small(3 * i + 1));
        for (size_t i = 0; i < bias.size(); ++i) bias[i] = bf16(small(i));
        std::vector<float> c(M * ldc, 2.0f), expected = c;
        for (int64_t i = 0; i < M; ++i)
          for (int64_t j = 0; j < N; ++j) {
            float sum = (adds ? 2.0f : 0.0f) + (has_bias ? static_cast<float>(bias[j]) : 0.0f);
            for (int64_t k = 0; k < K; ++k)
              sum += alpha * static_cast<float>(a[transpose_a ? k * lda + i : i * lda + k]) *
                     static_cast<float>(b[transpose_b ? j * ldb + k : k * ldb + j]);
            expected[i * ldc + j] = out == DType::bf16 ? static_cast<float>(bf16(sum)) : sum;
          }
        const WidenedTile& tile = tiles.emplace_back(GemmTile{.M = M,
                                                              .N = N,
                                                              .K = K,
                                                              .lda = lda,
                                                              .ldb = ldb,
                                                              .ldc = ldc,
                                                              .in = DType::bf16,
                                                              .out = out,
                                                              .transpose_a = transpose_a,
                                                              .transpose_b = transpose_b,
                                                              .bias = has_bias,
                                                              .accumulate = adds,
                                                              .alpha = alpha});
        std::vector<bf16> rounded(c.begin(), c.end());
        std::vector<char> room(tile.scratch_bytes() + 64);
        void* scratch = room.data();
        size_t space = room.size();
        std::align(64, tile.scratch_bytes(), scratch, space);
        tile.run({.c = out == DType::bf16 ? static_cast<void*>(rounded.data()) : c.data(),
                  .a = a.data(),
                  .b = b.data(),
                  .bias = bias.data(),
                  .scratch = scratch});
        if (out == DType::bf16) c.assign(rounded.begin(), rounded.end());
        CHECK(c == expected);
      }
}

TEST_CASE("gemm is exact where rows are a multiple of 2 KiB apart, which it may copy") {
  // In few enough operations for one tile, whose rows are as long.
  for (const DType dtype : {DType::f32, DType::bf16})
    for (int variant = 0; variant < 8; ++variant) {
      const bool transpose_a = variant & 1, transpose_b = variant & 2, is_high = variant & 4;
      const int64_t M = is_high ? 512 : 64, N = is_high ? 64 : 512, K = 33;
      CAPTURE(dtype);
      CAPTURE(variant);
      StreamSet streams(Device::cpu()), planning(Device::cpu(), {.planning = true});
      Stream &stream = streams.add("compute"), &dry = planning.add("compute");
      Arena arena("arguments", Device::cpu()), scratch("scratch", Device::cpu());
      const auto make = [&] {
        return Gemm{.c = arena.alloc(DType::f32, {M, N}),
                    .a = arena.alloc(dtype, transpose_a ? Shape({K, M}) : Shape({M, K})),
                    .b = arena.alloc(dtype, transpose_b ? Shape({N, K}) : Shape({K, N})),
                    .transpose_a = transpose_a,
                    .transpose_b = transpose_b};
      };
      gemm(dry, scratch, make());
      arena.commit();
      scratch.commit();
      const Gemm g = make();
      std::vector<double> a(g.a.size()), b(g.b.size());
      for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<double>(i * 7 % 11) - 5;  // sums are exact
      for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<double>(i * 5 % 13) - 6;
      bench::from_doubles(g.a, a);
      bench::from_doubles(g.b, b);
      gemm(stream, scratch, g);
      stream.sync();
      int64_t wrong = 0;
      for (int64_t i = 0; i < M; ++i)
        for (int64_t j = 0; j < N; ++j) {
          double sum = 0;
          for (int64_t k = 0; k < K; ++k)
            sum += a[transpose_a ? k * M + i : i * K + k] * b[transpose_b ? j * K + k : k * N + j];
          wrong += g.c.as<float>()[i * N + j] != static_cast<float>(sum);
        }
      CHECK(wrong == 0);
    }
}

TEST_CASE("gemm gives the same bits on 1, 2 and 3 threads where c has many tiles") {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    CAPTURE(dtype);
    const auto run = [&](int threads) {
      const int before = thread_count();
      set_thread_count(threads);
      StreamSet streams(Device::cpu()), planning(Device::cpu(), {.planning = true});
      Stream &stream = streams.add("compute"), &dry = planning.add("compute");
      Arena arena("arguments", Device::cpu()), scratch("scratch", Device::cpu());
      const auto make = [&] {
        return Gemm{.c = arena.alloc(DType::f32, {1040, 530}),
                    .a = arena.alloc(dtype, {200, 1040}),
                    .b = arena.alloc(dtype, {530, 200}),
                    .transpose_a = true,
                    .transpose_b = true};
      };
      gemm(dry, scratch, make());
      arena.commit();
      scratch.commit();
      const Gemm g = make();
      for (const Tensor& t : {g.a, g.b}) {
        std::vector<double> values(t.size());
        for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<double>(i));
        bench::from_doubles(t, values);
      }
      gemm(stream, scratch, g);
      set_thread_count(before);
      return bench::to_doubles(g.c);
    };
    const auto one = run(1);
    CHECK(run(2) == one);
    CHECK(run(3) == one);
  }
}

TEST_CASE("a row of a product with few rows has the same bits alone and among others") {
  constexpr int64_t N = 45, K = 83;
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  Arena scratch("scratch", Device::cpu());
  for (const bool transpose_b : {false, true}) {
    std::vector<bf16> a(kFewRows * K), b(N * K), all(kFewRows * N), one(N);
    uint32_t state = 7;
    for (auto* values : {&a, &b})
      for (bf16& value : *values) {
        state = state * 1664525u + 1013904223u;
        value = bf16(static_cast<float>(state >> 8) * 0x1p-23f - 1.0f);
      }
    const Tensor weights = tensor_of(b.data(), transpose_b ? Shape{N, K} : Shape{K, N});
    const auto multiply = [&](std::vector<bf16>& c, int64_t row, int64_t rows) {
      gemm(stream, scratch,
           {.c = tensor_of(c.data(), {rows, N}),
            .a = tensor_of(a.data() + row * K, {rows, K}),
            .b = weights,
            .transpose_b = transpose_b});
    };
    multiply(all, 0, kFewRows);
    for (int64_t row = 0; row < kFewRows; ++row) {
      multiply(one, row, 1);
      CHECK(std::memcmp(one.data(), all.data() + row * N, N * sizeof(bf16)) == 0);
    }
  }
}
