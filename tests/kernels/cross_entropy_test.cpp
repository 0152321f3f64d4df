#include "kernels/cross_entropy.h"

#include <cmath>
#include <limits>
#include <vector>

#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

// Rows of logits, with weights 1 and targets 0 by default.
struct Rows {
  Rows(int64_t row_count, int64_t vocabulary, float logit = 0)
      : N(row_count),
        V(vocabulary),
        logits(static_cast<size_t>(N * V), logit),
        dlogits(logits.size(), NAN),
        loss(static_cast<size_t>(N), NAN),
        weights(loss.size(), 1.0f),
        targets(loss.size(), 0) {}

  void forward(int64_t valid_vocab = 0) {
    cross_entropy_forward(stream, {.loss = tensor_of(loss.data(), {N}),
                                   .logits = tensor_of(logits.data(), {N, V}),
                                   .targets = tensor_of(targets.data(), {N}),
                                   .target_weights = tensor_of(weights.data(), {N}),
                                   .valid_vocab = valid_vocab});
  }
  void backward(std::vector<float>& gradient, int64_t valid_vocab = 0) {
    cross_entropy_backward(stream, {.dlogits = tensor_of(gradient.data(), {N, V}),
                                    .loss = tensor_of(loss.data(), {N}),
                                    .logits = tensor_of(logits.data(), {N, V}),
                                    .targets = tensor_of(targets.data(), {N}),
                                    .target_weights = tensor_of(weights.data(), {N}),
                                    .valid_vocab = valid_vocab});
  }

  StreamSet streams{Device::cpu()};
  Stream& stream = streams.add("compute");
  int64_t N, V;
  std::vector<float> logits, dlogits, loss, weights;
  std::vector<int32_t> targets;
};

constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("cross-entropy matches PyTorch in f32 and bf16") {
  for (const Case& c : bench::golden_cases("cross_entropy")) {
    CAPTURE(label(c));
    CHECK(test::golden_error(c, str("cross_entropy_", c.dtype)) <= tolerance(c));
  }
}

TEST_CASE("cross-entropy of equal logits is the logarithm of the vocabulary") {
  Rows rows(1, 50257, 80.0f);
  rows.targets[0] = 50256;
  rows.backward(rows.dlogits);
  CHECK(rows.loss[0] == doctest::Approx(std::log(50257.0)).epsilon(1e-6));
  CHECK(rows.dlogits[0] * 50257 == doctest::Approx(1).epsilon(1e-5));
  CHECK(rows.dlogits[50256] == doctest::Approx(-1).epsilon(1e-4));
}

TEST_CASE("cross-entropy does not overflow for large logits that rise and fall between blocks") {
  for (const float step : {0.3f, -0.3f}) {
    Rows rows(1, 5000);
    for (int64_t i = 0; i < rows.V; ++i) rows.logits[static_cast<size_t>(i)] = step * static_cast<float>(i);
    rows.targets[0] = step > 0 ? 4999 : 0;
    rows.backward(rows.dlogits);
    CHECK(rows.loss[0] == doctest::Approx(-std::log1p(-std::exp(-0.3))).epsilon(1e-5));
    CHECK(rows.dlogits[static_cast<size_t>(rows.targets[0])] ==
          doctest::Approx(-std::exp(-0.3)).epsilon(1e-5));
  }
}

TEST_CASE("cross-entropy gives the same bits in place and without the gradient") {
  Rows apart(3, 1100);
  for (size_t i = 0; i < apart.logits.size(); ++i) apart.logits[i] = std::sin(static_cast<float>(i));
  apart.targets = {7, -100, 1099};
  Rows in_place(3, 1100), forward(3, 1100);
  in_place.logits = forward.logits = apart.logits;
  in_place.targets = forward.targets = apart.targets;
  apart.backward(apart.dlogits);
  in_place.backward(in_place.logits);
  forward.forward();
  CHECK(in_place.logits == apart.dlogits);
  CHECK(in_place.loss == apart.loss);
  CHECK(forward.loss == apart.loss);
}

TEST_CASE("cross-entropy ignores all negative targets, even with NaN logits") {
  Rows rows(2, 20, NAN);
  rows.targets = {-100, -1};
  rows.backward(rows.dlogits);
  CHECK(rows.loss == std::vector<float>{0, 0});
  CHECK(rows.dlogits == std::vector<float>(40, 0.0f));
}

TEST_CASE("cross-entropy ignores padding columns and writes zero gradients there") {
  Rows rows(1, 20, 1.0f);
  for (size_t i = 17; i < 20; ++i) rows.logits[i] = NAN;
  rows.backward(rows.dlogits, 17);
  CHECK(rows.loss[0] == doctest::Approx(std::log(17.0)));
  CHECK(std::isfinite(rows.dlogits[16]));
  for (size_t i = 17; i < 20; ++i) CHECK(rows.dlogits[i] == 0.0f);
}

TEST_CASE("cross-entropy gives a logit of -infinity no probability, and propagates NaN") {
  Rows rows(3, 40, 0.0f);
  rows.logits[3] = -kInfinity;
  rows.logits[40 + 3] = NAN;
  for (size_t i = 80; i < 120; ++i) rows.logits[i] = -kInfinity;
  rows.backward(rows.dlogits);
  CHECK(rows.loss[0] == doctest::Approx(std::log(39.0)));
  CHECK(rows.dlogits[3] == 0.0f);
  CHECK(std::isnan(rows.loss[1]));
  CHECK(std::isnan(rows.loss[2]));
}

TEST_CASE("cross-entropy reports a target outside the vocabulary and writes nothing") {
  Rows rows(2, 20);
  rows.loss = {5, 5};
  rows.targets = {3, 20};
  CHECK(test::error_of([&] { rows.forward(); }) == "target 20 at 1 is outside the vocabulary of 20");
  CHECK(test::error_of([&] { rows.backward(rows.dlogits, 19); }) ==
        "target 20 at 1 is outside the vocabulary of 19");
  CHECK(rows.loss == std::vector<float>{5, 5});
}

TEST_CASE("cross-entropy names a vocabulary and shapes that make no sense") {
  Rows rows(2, 20);
  CHECK(test::error_of([&] { rows.forward(21); }) ==
        "cross_entropy_forward: valid_vocab is 21, must be in [0, 20]");
  rows.N = 1;
  CHECK(test::error_of([&] {
          cross_entropy_backward(rows.stream, {.dlogits = tensor_of(rows.dlogits.data(), {2, 20}),
                                               .loss = tensor_of(rows.loss.data(), {1}),
                                               .logits = tensor_of(rows.logits.data(), {2, 20}),
                                               .targets = tensor_of(rows.targets.data(), {2}),
                                               .target_weights = tensor_of(rows.weights.data(), {2})});
        }) == "cross_entropy_backward: loss is f32 (1), must be f32 with one element for each of 2 rows");
}
