#include "train/tools/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

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

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options) {
  const bool may_draw = options.temperature > 0 || (options.greedy && options.temperature == 0);
  check(may_draw && std::isfinite(options.temperature), "temperature is ", options.temperature,
        ", must be positive; use greedy to take the most likely token");
  check(options.top_k >= 0, "top-k is ", options.top_k, ", must be 0 (all) or positive");
  check(options.top_p > 0 && options.top_p <= 1, "top-p is ", options.top_p,
        ", must be above 0 and at most 1");
}

std::vector<Sampler::Candidate> Sampler::candidates(std::span<const float> logits) const {
  check_logits(logits);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto before = [&](int32_t a, int32_t b) {
    const float za = logits[static_cast<size_t>(a)], zb = logits[static_cast<size_t>(b)];
    return za != zb ? za > zb : a < b;
  };
  const size_t all = order.size();
  const size_t kept = options_.top_k > 0 ? std::min(all, static_cast<size_t>(options_.top_k)) : all;
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(), before);

  std::vector<Candidate> found;
  const double largest = logits[static_cast<size_t>(order[0])];
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    const double z = logits[static_cast<size_t>(order[i])];
    found.push_back({order[i], std::exp((z - largest) / options_.temperature)});
    sum += found.back().probability;
  }
  double reached = 0;
  size_t last = 0;
  while (last < kept && (options_.top_p == 1 || reached < options_.top_p * sum))
    reached += found[last++].probability;
  found.resize(last);
  for (Candidate& c : found) c.probability /= reached;
  return found;
}

int32_t Sampler::sample(std::span<const float> logits, int64_t position) const {
  if (options_.greedy) {
    check_logits(logits);
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  const std::vector<Candidate> from = candidates(logits);
  const double drawn = RandomStream(options_.seed, "sample").uniform(position);
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
