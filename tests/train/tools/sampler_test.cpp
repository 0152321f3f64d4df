#include "train/tools/sampler.h"

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

TEST_CASE("tokens are drawn as often as their probabilities say, as a function of seed and position") {
  const Floats logits = logits_of({5, 3, 2, 1e-30});
  const Sampler sampler({.seed = 3}), same({.seed = 3}), other({.seed = 4});
  constexpr int64_t kDraws = 20000;
  std::map<int32_t, double> share;
  int64_t different = 0;
  for (int64_t position = 0; position < kDraws; ++position) {
    const int32_t token = sampler.sample(logits, position);
    CHECK(same.sample(logits, position) == token);
    different += other.sample(logits, position) != token;
    share[token] += 1.0 / kDraws;
  }
  // Five deviations of a share, sqrt(p (1 - p) / n).
  for (const auto& [token, p] : std::map<int32_t, double>{{0, 0.5}, {1, 0.3}, {2, 0.2}})
    CHECK(std::abs(share[token] - p) < 5 * std::sqrt(p * (1 - p) / kDraws));
  CHECK(!share.contains(3));
  CHECK(different > kDraws / 2);  // two draws differ with probability 0.62
}

TEST_CASE("greedy takes the most likely token, ties by token number") {
  const Sampler sampler({.greedy = true, .temperature = 0.1});
  CHECK(sampler.sample(Floats{1.0f, 7.0f, 7.0f, -2.0f}, 0) == 1);
  CHECK(sampler.sample(Floats{-INFINITY, -5.0f}, 9) == 1);
}

TEST_CASE("a token whose logit is minus infinity is never drawn") {
  const Sampler sampler({.temperature = 100});
  const Floats logits{-INFINITY, 0.0f, -INFINITY, 0.0f};
  for (int64_t position = 0; position < 1000; ++position) CHECK(sampler.sample(logits, position) % 2 == 1);
}

TEST_CASE("options and logits without a valid distribution are errors that name them") {
  const auto error = [](const SamplerOptions& options) {
    return test::error_of([&] { Sampler sampler(options); });
  };
  CHECK(error({.temperature = 0}) ==
        "temperature is 0, must be positive; use greedy to take the most likely token");
  CHECK(error({.greedy = true, .temperature = 0}) == "");
  CHECK(error({.greedy = true, .temperature = -1}).starts_with("temperature is -1"));
  CHECK(error({.temperature = NAN}).starts_with("temperature is nan"));
  CHECK(error({.top_k = -1}) == "top-k is -1, must be 0 (all) or positive");
  CHECK(error({.top_p = 0}) == "top-p is 0, must be above 0 and at most 1");
  CHECK(error({.top_p = 1.5}).starts_with("top-p is 1.5"));
  for (const bool greedy : {false, true}) {
    const Sampler sampler({.greedy = greedy});
    CHECK(test::error_of([&] {
            sampler.sample(Floats{0.0f, NAN}, 0);
          }) == "sampler: the logit of token 1 is nan");
    CHECK(test::error_of([&] { sampler.sample(Floats{INFINITY}, 0); }) ==
          "sampler: the logit of token 0 is inf");
    CHECK(test::error_of([&] { sampler.sample(Floats{-INFINITY}, 0); }) == "sampler: no logit is finite");
  }
}
