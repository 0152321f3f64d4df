#include "tools/inference/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/check.h"
#include "runtime/rng.h"

namespace flatshard {
namespace {

void check_logits(std::span<const float> logits) {
  check(!logits.empty(), "sampler: no logits");
  bool any = false;
  for (size_t i = 0; i < logits.size(); ++i) {
    check(logits[i] < std::numeric_limits<float>::infinity(), "sampler: the logit of token ", i, " is ",
          logits[i]);
    any = any || std::isfinite(logits[i]);
  }
  check(any, "sampler: no logit is finite");
}

// Candidates in descending order, taken one at a time from a heap. So only the likely tokens of a large
// vocabulary are ever sorted.
class Ranking {
 public:
  Ranking(std::span<const float> logits, const SamplerOptions& options) : logits_(logits) {
    for (size_t i = 0; i < logits.size(); ++i) tokens_.push_back(static_cast<int32_t>(i));
    if (options.top_k > 0 && static_cast<size_t>(options.top_k) < tokens_.size()) {
      const auto kept = tokens_.begin() + options.top_k;
      std::nth_element(tokens_.begin(), kept, tokens_.end(),
                       [this](int32_t a, int32_t b) { return before(a, b); });
      tokens_.erase(kept, tokens_.end());
    }
    std::make_heap(tokens_.begin(), tokens_.end(), After{this});
    largest_ = logits[static_cast<size_t>(tokens_.front())];
    temperature_ = options.temperature;
    for (const int32_t token : tokens_) sum_ += weight(token);
  }

  bool empty() const { return tokens_.empty(); }
  double sum() const { return sum_; }  // sum of the weights of all candidates
  // Returns the next candidate with its weight; the first one has weight 1.
  Sampler::Candidate next() {
    std::pop_heap(tokens_.begin(), tokens_.end(), After{this});
    const int32_t token = tokens_.back();
    tokens_.pop_back();
    return {token, weight(token)};
  }

 private:
  struct After {
    const Ranking* ranking;
    bool operator()(int32_t a, int32_t b) const { return ranking->before(b, a); }
  };
  bool before(int32_t a, int32_t b) const {
    const float za = logits_[static_cast<size_t>(a)], zb = logits_[static_cast<size_t>(b)];
    return za != zb ? za > zb : a < b;
  }
  double weight(int32_t token) const {
    return std::exp((static_cast<double>(logits_[static_cast<size_t>(token)]) - largest_) / temperature_);
  }

  std::span<const float> logits_;
  std::vector<int32_t> tokens_;
  double largest_ = 0, temperature_ = 1, sum_ = 0;
};

// Takes candidates while their sum is below `until` and they are likely enough. Returns their sum.
double take_candidates(Ranking& ranking, double until, double min_p, std::vector<Sampler::Candidate>& taken) {
  double reached = 0;
  while (!ranking.empty() && reached < until) {
    const Sampler::Candidate next = ranking.next();
    if (next.probability < min_p) break;
    taken.push_back(next);
    reached += next.probability;
  }
  return reached;
}

constexpr double kAll = std::numeric_limits<double>::infinity();

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  check(options.temperature >= 0 && std::isfinite(options.temperature), "temperature is ",
        options.temperature, ", must be 0 (always the most likely token) or positive");
  check(options.top_k >= 0, "top-k is ", options.top_k, ", must be 0 (all) or positive");
  check(options.top_p > 0 && options.top_p <= 1, "top-p is ", options.top_p,
        ", must be above 0 and at most 1");
  check(options.min_p >= 0 && options.min_p <= 1, "min-p is ", options.min_p, ", must be from 0 (all) to 1");
  const float penalty = static_cast<float>(options.repetition_penalty);
  check(penalty > 0 && std::isfinite(penalty), "the repetition penalty is ", options.repetition_penalty,
        ", must be positive; 1 penalizes nothing");
}

std::vector<float> Sampler::penalized(std::span<const float> logits, std::span<const int32_t> text) const {
  std::vector<float> result(logits.begin(), logits.end());
  const float penalty = static_cast<float>(options_.repetition_penalty);
  if (penalty == 1) return result;
  for (const int32_t token : text) {
    const size_t i = static_cast<size_t>(token);
    result[i] = logits[i] > 0 ? logits[i] / penalty : logits[i] * penalty;
  }
  check_logits(result);
  return result;
}

std::vector<Sampler::Candidate> Sampler::candidates(std::span<const float> logits,
                                                    std::span<const int32_t> text) const {
  check_logits(logits);
  const std::vector<float> z = penalized(logits, text);
  Ranking ranking(z, options_);
  std::vector<Candidate> found;
  const double until = options_.top_p < 1 ? options_.top_p * ranking.sum() : kAll;
  const double reached = take_candidates(ranking, until, options_.min_p, found);
  for (Candidate& c : found) c.probability /= reached;
  return found;
}

int32_t Sampler::sample(std::span<const float> logits, std::span<const int32_t> text) const {
  check_logits(logits);
  if (options_.temperature == 0) {
    const std::vector<float> z = penalized(logits, text);
    return static_cast<int32_t>(std::max_element(z.begin(), z.end()) - z.begin());
  }
  const double drawn = RandomStream(options_.seed, "sample").uniform(static_cast<int64_t>(text.size()));
  if (options_.top_p == 1 && options_.min_p == 0) {  // the sum is known before the candidates are sorted
    const std::vector<float> z = penalized(logits, text);
    Ranking ranking(z, options_);
    const double until = drawn * ranking.sum();
    Candidate last = ranking.next();
    for (double sum = last.probability; sum <= until && !ranking.empty();) {
      const Candidate next = ranking.next();
      if (next.probability == 0) break;  // rounding left the sum below the drawn number
      last = next;
      sum += next.probability;
    }
    return last.token;
  }
  const std::vector<Candidate> from = candidates(logits, text);
  double sum = 0;
  for (const Candidate& c : from) {
    sum += c.probability;
    if (drawn < sum) return c.token;
  }
  // Rounding left the sum below the drawn number: take the last candidate with a positive probability.
  const auto possible = [](const Candidate& c) { return c.probability > 0; };
  return std::find_if(from.rbegin(), from.rend(), possible)->token;
}

}  // namespace flatshard
