#include "kernels/embedding.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/index_sort.h"
#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

// Three tokens in two features, a vocabulary of four, two positions.
struct Small {
  StreamSet streams{Device::cpu()};
  Stream& stream = streams.add("compute");
  float w[8] = {0, 1, 2, 3, 4, 5, 6, 7}, p[4] = {10, 20, 30, 40}, y[6] = {};
  float dw[8] = {}, dp[4] = {};
  int32_t tokens[3] = {3, 0, 3}, positions[3] = {0, 1, 1};

  void forward() {
    embedding_forward(stream, {.y = tensor_of(y, {3, 2}),
                               .w = tensor_of(w, {4, 2}),
                               .tokens = tensor_of(tokens, {3}),
                               .p = tensor_of(p, {2, 2}),
                               .positions = tensor_of(positions, {3})});
  }
  void backward(float* dy) {
    const EmbeddingBackward a{.dw = tensor_of(dw, {4, 2}),
                              .dy = tensor_of(dy, {3, 2}),
                              .tokens = tensor_of(tokens, {3}),
                              .dp = tensor_of(dp, {2, 2}),
                              .positions = tensor_of(positions, {3})};
    Arena scratch("scratch", Device::cpu());
    StreamSet planning(Device::cpu(), {.planning = true});
    embedding_backward(planning.add("plan"), scratch, a);
    scratch.commit();
    embedding_backward(stream, scratch, a);
  }
};

}  // namespace

TEST_CASE("embedding matches PyTorch in f32 and bf16") {
  for (const Case& c : bench::golden_cases("embedding")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str("embedding_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("the gradients of a repeated token are added in order") {
  Small s;
  float dy[6] = {1e8f, 0, -1e8f, 0, 1, 0};
  for (int32_t& token : s.tokens) token = 2;
  s.backward(dy);
  CHECK(s.dw[4] == 1.0f);  // any other order gives 0
  CHECK(s.dw[6] == 0.0f);
}

TEST_CASE("tokens are sorted with equal ones in order, by one to three digits") {
  constexpr int64_t kSize = 3000;
  for (const int64_t bound : {1, 2, 512, 513, 1 << 18, (1 << 18) + 1}) {
    CAPTURE(bound);
    std::vector<int32_t> tokens(kSize), expected(kSize);
    for (int64_t n = 0; n < kSize; ++n)  // about a third of them repeat
      tokens[n] = static_cast<int32_t>((n % 3 == 0 ? bound - 1 : n * n * 7919) % bound);
    std::iota(expected.begin(), expected.end(), 0);
    std::stable_sort(expected.begin(), expected.end(), [&](int a, int b) { return tokens[a] < tokens[b]; });
    std::vector<int32_t> scratch(sort_scratch(Device::cpu(), kSize, bound));
    const int32_t* order = cpu::sort_indices(tokens.data(), kSize, bound, scratch.data());
    CHECK(std::equal(expected.begin(), expected.end(), order));
  }
}

TEST_CASE("embedding reports a token outside the vocabulary in both directions and writes nothing") {
  for (const int32_t bad : {4, -1}) {
    Small s;
    s.tokens[2] = bad;
    const std::string expected = str("token ", bad, " at 2 is outside the vocabulary of 4");
    float dy[6] = {1, 1, 1, 1, 1, 1};
    CHECK(test::error_of([&] { s.forward(); }) == expected);
    CHECK(test::error_of([&] { s.backward(dy); }) == expected);
    CHECK(s.y[0] == 0.0f);
    CHECK(s.dw[6] == 0.0f);
  }
}

TEST_CASE("embedding reports a position outside the table in both directions") {
  Small s;
  s.positions[1] = 2;
  float dy[6] = {};
  CHECK(test::error_of([&] { s.forward(); }) == "position 2 at 1 is outside the table of 2");
  CHECK(test::error_of([&] { s.backward(dy); }) == "position 2 at 1 is outside the table of 2");
}

TEST_CASE("embedding reports shapes that do not fit") {
  Small s;
  CHECK(test::error_of([&] {
          embedding_forward(
              s.stream,
              {.y = tensor_of(s.y, {2, 3}), .w = tensor_of(s.w, {4, 2}), .tokens = tensor_of(s.tokens, {2})});
        }) == "embedding_forward: w is f32 (4, 2), must be f32 (rows, 3)");
  CHECK(test::error_of([&] {
          Arena scratch("scratch", Device::cpu());
          embedding_backward(s.stream, scratch,
                             {.dw = tensor_of(s.dw, {4, 2}),
                              .dy = tensor_of(s.y, {3, 2}),
                              .tokens = tensor_of(s.tokens, {2})});
        }) == "embedding_backward: tokens is i32 (2), must be i32 with one element for each of 3 rows");
}
