#include "tools/inference/sampler.h"

#include <cmath>
#include <map>

#include "tests/test.h"

using namespace flatshard;

namespace {

using Floats = std::vector<float>;

// Logits whose probabilities at temperature 1 are these weights over their sum.
Floats logits_of(const std::vector<double>& weights) {
  Floats logits;
  for (const double w : weights) logits.push_back(static_cast<float>(std::log(w)));
  return logits;
}

void check_candidates(const SamplerOptions& options, const Floats& logits, const std::vector<int32_t>& tokens,
                      const std::vector<double>& probabilities) {
  const auto found = Sampler(options).candidates(logits);
  REQUIRE(found.size() == tokens.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].token == tokens[i]);
    CHECK(found[i].probability == doctest::Approx(probabilities[i]).epsilon(1e-6));  // logits are floats
  }
}

}  // namespace

TEST_CASE("candidates have softmax probabilities in descending order, ties by token number") {
  check_candidates({}, logits_of({1, 4, 2, 1}), {1, 2, 0, 3}, {0.5, 0.25, 0.125, 0.125});
  check_candidates({}, {3.0f, 3.0f, 3.0f, 3.0f}, {0, 1, 2, 3}, {0.25, 0.25, 0.25, 0.25});
  check_candidates({}, {500.0f, -500.0f}, {0, 1}, {1, 0});
}

TEST_CASE("the temperature divides every logit") {
  check_candidates({.temperature = 0.5}, logits_of({1, 2, 3}), {2, 1, 0}, {9.0 / 14, 4.0 / 14, 1.0 / 14});
  check_candidates({.temperature = 2}, logits_of({1, 4, 9}), {2, 1, 0}, {0.5, 1.0 / 3, 1.0 / 6});
}

TEST_CASE("top-k keeps the k most likely tokens, ties by token number") {
  check_candidates({.top_k = 2}, logits_of({1, 4, 2, 1}), {1, 2}, {2.0 / 3, 1.0 / 3});
  check_candidates({.top_k = 3}, logits_of({1, 4, 2, 1}), {1, 2, 0}, {4.0 / 7, 2.0 / 7, 1.0 / 7});
  check_candidates({.top_k = 1}, {2.0f, 2.0f}, {0}, {1});
  check_candidates({.top_k = 9}, logits_of({1, 3}), {1, 0}, {0.75, 0.25});
}

TEST_CASE("top-p keeps the fewest most likely tokens whose sum reaches it") {
  const Floats logits = logits_of({5, 3, 1, 1});  // 0.5, 0.3, 0.1, 0.1
  check_candidates({.top_p = 0.4}, logits, {0}, {1});
  check_candidates({.top_p = 0.6}, logits, {0, 1}, {0.625, 0.375});
  check_candidates({.top_p = 0.85}, logits, {0, 1, 2}, {5.0 / 9, 3.0 / 9, 1.0 / 9});
  check_candidates({.top_p = 1e-9}, logits, {0}, {1});
  // After top-k, of what remains: 5/9, 3/9, 1/9.
  check_candidates({.top_k = 3, .top_p = 0.85}, logits, {0, 1}, {0.625, 0.375});
}

TEST_CASE("min-p keeps the tokens that are likely enough next to the most likely one") {
  const Floats logits = logits_of({5, 3, 1, 1});
  check_candidates({.min_p = 0.5}, logits, {0, 1}, {0.625, 0.375});
  check_candidates({.min_p = 0.1}, logits, {0, 1, 2, 3}, {0.5, 0.3, 0.1, 0.1});
  check_candidates({.min_p = 1}, logits, {0}, {1});
  check_candidates({.top_p = 0.4, .min_p = 0.1}, logits, {0}, {1});
}

TEST_CASE(
    "the repetition penalty divides positive logits of the text's tokens and multiplies negative ones") {
  const Floats logits{2.0f, -1.0f, 0.5f, -3.0f};
  const std::vector<int32_t> text{0, 1, 0, 1};  // a token is penalized once
  const auto found = Sampler({.repetition_penalty = 2}).candidates(logits, text);
  const double sum = std::exp(1.0) + std::exp(0.5) + std::exp(-2.0) + std::exp(-3.0);
  REQUIRE(found.size() == 4);
  const std::vector<std::pair<int32_t, double>> expected{{0, 1.0}, {2, 0.5}, {1, -2.0}, {3, -3.0}};
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(found[i].token == expected[i].first);
    CHECK(found[i].probability == doctest::Approx(std::exp(expected[i].second) / sum).epsilon(1e-6));
  }
  CHECK(Sampler({.temperature = 0, .repetition_penalty = 5}).sample(logits, text) == 2);
}

TEST_CASE("the draw among all tokens is that among their sorted candidates") {
  Floats logits;
  for (int i = 0; i < 300; ++i) logits.push_back(static_cast<float>(i * 37 % 101) * 0.05f);
  const Sampler all({.seed = 9}), nearly_all({.min_p = 1e-9, .seed = 9});
  for (size_t length = 0; length < 200; ++length) {
    const std::vector<int32_t> text(length);
    CHECK(all.sample(logits, text) == nearly_all.sample(logits, text));
  }
}

TEST_CASE("tokens are drawn with their probabilities, as a function of seed and position") {
  const Floats logits = logits_of({5, 3, 2, 1e-30});
  const Sampler sampler({.seed = 3}), same({.seed = 3}), other({.seed = 4});
  constexpr int64_t kDraws = 20000;
  std::map<int32_t, double> share;
  int64_t different = 0;
  std::vector<int32_t> text;
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    text.push_back(0);
    const int32_t token = sampler.sample(logits, text);
    CHECK(same.sample(logits, text) == token);
    different += other.sample(logits, text) != token;
    share[token] += 1.0 / kDraws;
  }
  // Five deviations of a share, sqrt(p (1 - p) / n).
  for (const auto& [token, p] : std::map<int32_t, double>{{0, 0.5}, {1, 0.3}, {2, 0.2}})
    CHECK(std::abs(share[token] - p) < 5 * std::sqrt(p * (1 - p) / kDraws));
  CHECK(!share.contains(3));
  CHECK(different > kDraws / 2);  // two draws differ with probability 0.62
}

TEST_CASE("temperature 0 takes the most likely token, ties by token number") {
  const Sampler sampler({.temperature = 0});
  CHECK(sampler.sample(Floats{1.0f, 7.0f, 7.0f, -2.0f}, {}) == 1);
  CHECK(sampler.sample(Floats{-INFINITY, -5.0f}, {}) == 1);
}

TEST_CASE("a token whose logit is minus infinity is never drawn") {
  const Sampler sampler({.temperature = 100});
  const Floats logits{-INFINITY, 0.0f, -INFINITY, 0.0f};
  for (size_t length = 0; length < 1000; ++length)
    CHECK(sampler.sample(logits, std::vector<int32_t>(length)) % 2 == 1);
}

TEST_CASE("options and logits without a valid distribution are errors that name them") {
  const auto error = [](const SamplerOptions& options) {
    return test::error_of([&] { Sampler sampler(options); });
  };
  CHECK(error({.temperature = 0}) == "");
  CHECK(error({.temperature = -1}) ==
        "temperature is -1, must be 0 (always the most likely token) or positive");
  CHECK(error({.temperature = NAN}).starts_with("temperature is nan"));
  CHECK(error({.top_k = -1}) == "top-k is -1, must be 0 (all) or positive");
  CHECK(error({.top_p = 0}) == "top-p is 0, must be above 0 and at most 1");
  CHECK(error({.top_p = 1.5}).starts_with("top-p is 1.5"));
  CHECK(error({.min_p = -0.1}) == "min-p is -0.1, must be from 0 (all) to 1");
  CHECK(error({.min_p = 1.1}).starts_with("min-p is 1.1"));
  CHECK(error({.repetition_penalty = 0}) ==
        "the repetition penalty is 0, must be positive; 1 penalizes nothing");
  CHECK(error({.repetition_penalty = 1e-320}).starts_with("the repetition penalty is"));
  CHECK(test::error_of([] {
          Sampler({.repetition_penalty = 1e-38}).sample(Floats{9.0f, 1.0f}, std::vector<int32_t>{0});
        }) == "sampler: the logit of token 0 is inf");
  for (const double temperature : {0.0, 1.0}) {
    const Sampler sampler({.temperature = temperature});
    CHECK(test::error_of([&] {
            sampler.sample(Floats{0.0f, NAN}, {});
          }) == "sampler: the logit of token 1 is nan");
    CHECK(test::error_of([&] { sampler.sample(Floats{INFINITY}, {}); }) ==
          "sampler: the logit of token 0 is inf");
    CHECK(test::error_of([&] { sampler.sample(Floats{-INFINITY}, {}); }) == "sampler: no logit is finite");
  }
}
