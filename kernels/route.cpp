#include "kernels/route.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/simd_math.h"
#include "runtime/parallel.h"
#include "runtime/targets.h"

namespace flatshard {
namespace {

using namespace simd;

constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kLeastSum = 1e-20f;

template <class Args>
void check_route(const char* op, const Args& a) {
  check(a.logits.dtype == DType::f32 && a.logits.shape.rank() == 2, op, ": logits are ", a.logits.dtype, " ",
        a.logits.shape, ", must be f32 (tokens, experts)");
  check(a.experts.dtype == DType::i32 && a.experts.shape.rank() == 2 &&
            a.experts.shape[0] == a.logits.shape[0] && a.experts.shape[1] <= a.logits.shape[1],
        op, ": experts are ", a.experts.dtype, " ", a.experts.shape, ", must be i32 with at most ",
        a.logits.shape[1], " for each of ", a.logits.shape[0], " tokens");
  check_elements(op, "weights", a.weights, DType::f32, a.experts.size());
  const auto [sigmoid, normalized, groups, top_groups, scale, in_turn] = a.rule;
  const int64_t E = a.logits.shape[1];
  check(sigmoid || (groups == 1 && scale == 1), op, ": groups and a scale take sigmoid");
  check(groups == 1 ||
            (groups >= 1 && groups <= kMostRouteGroups && E % groups == 0 && E / groups >= 2 &&
             top_groups >= 1 && top_groups <= groups && E / groups * top_groups >= a.experts.shape[1]),
        op, ": ", top_groups, " of ", groups, " groups of ", E, " experts for ", a.experts.shape[1],
        " of a token");
}

// exp(logits - largest) of a row, and their sum.
struct Softmax {
  float largest, sum;

  Softmax(const float* logits, int64_t E) {
    Floats top = splat(kLowest), exps{};
    for_each_vector(E, [&](int64_t i, auto lanes) {
      top = max(top, keep_lanes(load(logits + i, lanes), lanes, kLowest));
    });
    largest = max(top);
    for_each_vector(E, [&](int64_t i, auto lanes) {
      exps += keep_lanes(exp(load(logits + i, lanes) - largest), lanes, 0.0f);
    });
    sum = simd::sum(exps);
  }
  Floats of(Floats logits) const { return exp(logits - largest) / sum; }
  float of(float logit) const { return of(splat(logit))[0]; }
  float lse() const { return largest + std::log(sum); }
};

// Whether a logit comes before another in the choice.
bool precedes(float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); }

// The k largest scores of those that `may` lets be chosen.
template <class May>
void choose(const float* scores, int64_t E, int64_t k, int32_t* chosen, const May& may) {
  int64_t count = 0;
  for (int64_t e = 0; e < E; ++e) {
    if (!may(e)) continue;
    int64_t at = count;
    while (at > 0 && precedes(scores[e], scores[chosen[at - 1]])) --at;
    if (at == k) continue;
    count = std::min(count + 1, k);
    std::copy_backward(chosen + at, chosen + count - 1, chosen + count);
    chosen[at] = static_cast<int32_t>(e);
  }
}
constexpr auto kAny = [](int64_t) { return true; };

float sigmoid(float logit) { return 1 / (1 + exp(splat(-logit)))[0]; }

// Chooses by the scores of sigmoid, with their bias.
void choose_by_sigmoid(const RouteForward& a, const float* logits, int32_t* chosen) {
  const int64_t E = a.logits.shape[1], k = a.experts.shape[1], groups = a.rule.groups, size = E / groups;
  std::array<float, kMostRouteGroups> of_group{};
  std::array<int32_t, kMostRouteGroups> best{};
  std::array<bool, kMostRouteGroups> taken{};
  std::vector<float> scores(static_cast<size_t>(E));
  for (int64_t e = 0; e < E; ++e)
    scores[static_cast<size_t>(e)] = sigmoid(logits[e]) + (a.bias.empty() ? 0 : a.bias.as<float>()[e]);
  if (groups == 1) return choose(scores.data(), E, k, chosen, kAny);
  for (int64_t g = 0; g < groups; ++g) {
    const float* const own = scores.data() + g * size;
    std::array<int32_t, 2> two{};
    choose(own, size, 2, two.data(), kAny);
    of_group[static_cast<size_t>(g)] = own[two[0]] + own[two[1]];
  }
  choose(of_group.data(), groups, a.rule.top_groups, best.data(), kAny);
  for (int64_t j = 0; j < a.rule.top_groups; ++j)
    taken[static_cast<size_t>(best[static_cast<size_t>(j)])] = true;
  choose(scores.data(), E, k, chosen, [&](int64_t e) { return taken[static_cast<size_t>(e / size)]; });
}

// The sum that normalized weights of sigmoid are divided by.
float sum_of_scores(const float* logits, const int32_t* chosen, int64_t k) {
  float sum = 0;
  for (int64_t j = 0; j < k; ++j) sum += sigmoid(logits[chosen[j]]);
  return sum + kLeastSum;
}

void weigh(const RouteForward& a, const float* logits, const int32_t* chosen, float* weights) {
  const int64_t k = a.experts.shape[1];
  if (a.rule.sigmoid) {
    const float factor = a.rule.scale / (a.rule.normalized ? sum_of_scores(logits, chosen, k) : 1);
    for (int64_t j = 0; j < k; ++j) weights[j] = sigmoid(logits[chosen[j]]) * factor;
    return;
  }
  if (!a.rule.normalized) {
    const Softmax p(logits, a.logits.shape[1]);
    for (int64_t j = 0; j < k; ++j) weights[j] = p.of(logits[chosen[j]]);
    return;
  }
  float largest = logits[chosen[0]], sum = 0;
  for (int64_t j = 1; a.rule.in_turn && j < k; ++j) largest = std::max(largest, logits[chosen[j]]);
  for (int64_t j = 0; j < k; ++j) sum += weights[j] = exp(splat(logits[chosen[j]] - largest))[0];
  for (int64_t j = 0; j < k; ++j) weights[j] /= sum;
}

// Through w_j = scale s_j / sum: dlogit_j = w_j (1 - s_j) (dw_j - sum_i dw_i w_i / scale).
void sigmoid_gradient(const RouteBackward& a, int64_t row, float* dlogits) {
  const int64_t k = a.experts.shape[1], E = a.logits.shape[1];
  const float *const logits = a.logits.as<float>() + row * E,
                     *const weights = a.weights.as<float>() + row * k,
                     *const dweights = a.dweights.as<float>() + row * k;
  const int32_t* const chosen = a.experts.as<int32_t>() + row * k;
  float mean = 0;
  for (int64_t j = 0; a.rule.normalized && j < k; ++j) mean += weights[j] * dweights[j] / a.rule.scale;
  std::fill_n(dlogits, E, 0.0f);
  for (int64_t j = 0; j < k; ++j)
    dlogits[chosen[j]] = weights[j] * (1 - sigmoid(logits[chosen[j]])) * (dweights[j] - mean);
}

void weights_gradient(const RouteBackward& a, int64_t row, const Softmax& p, float* dlogits) {
  const int64_t k = a.experts.shape[1], E = a.logits.shape[1];
  const float *const logits = a.logits.as<float>() + row * E,
                     *const weights = a.weights.as<float>() + row * k,
                     *const dweights = a.dweights.as<float>() + row * k;
  const int32_t* const chosen = a.experts.as<int32_t>() + row * k;
  float mean = 0;  // the mean of dweights, by weights
  for (int64_t j = 0; j < k; ++j) mean += weights[j] * dweights[j];
  if (a.rule.normalized)
    std::fill_n(dlogits, E, 0.0f);
  else
    for_each_vector(
        E, [&](int64_t i, auto lanes) { store(dlogits + i, -mean * p.of(load(logits + i, lanes)), lanes); });
  for (int64_t j = 0; j < k; ++j)
    dlogits[chosen[j]] += weights[j] * (a.rule.normalized ? dweights[j] - mean : dweights[j]);
}

void add_auxiliary(const RouteBackward& a, int64_t row, const Softmax& p, float* dlogits) {
  const int64_t E = a.logits.shape[1];
  const float balance = a.factors.as<float>()[0], z = a.factors.as<float>()[1];
  const float* const logits = a.logits.as<float>() + row * E;
  const int32_t* const counts = a.counts.empty() ? nullptr : a.counts.as<int32_t>();
  float mean = 0;  // the mean of the gradients of p, by p
  for (int64_t e = 0; counts && e < E; ++e)
    mean += p.of(logits[e]) * (balance * static_cast<float>(counts[e]));
  const float lse = p.lse(), of_lse = 2 * z * lse;
  if (!a.losses.empty()) {
    float* const losses = a.losses.as<float>() + 2 * row;
    losses[0] += mean;
    losses[1] += z * lse * lse;
  }
  for (int64_t e = 0; e < E; ++e) {
    const float gradient = (counts ? balance * static_cast<float>(counts[e]) : 0) - mean + of_lse;
    dlogits[e] += p.of(logits[e]) * gradient;
  }
}

// The rows that one task takes.
int64_t rows_of_task(int64_t E) { return std::max<int64_t>(1, 8192 / E); }

void forward(const RouteForward& a) {
  const int64_t E = a.logits.shape[1], k = a.experts.shape[1];
  parallel_blocks(a.logits.shape[0], rows_of_task(E), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* const logits = a.logits.as<float>() + row * E;
      int32_t* const chosen = a.experts.as<int32_t>() + row * k;
      float* const weights = a.weights.as<float>() + row * k;
      if (!a.targets.empty() && a.targets.as<int32_t>()[row] == kPaddingTarget) {
        std::fill_n(chosen, k, -1);
        std::fill_n(weights, k, 0.0f);
        continue;
      }
      if (a.rule.in_turn)
        for (int64_t j = 0; j < k; ++j) chosen[j] = static_cast<int32_t>((row * k + j) % E);
      else if (a.rule.sigmoid)
        choose_by_sigmoid(a, logits, chosen);
      else
        choose(logits, E, k, chosen, kAny);
      weigh(a, logits, chosen, weights);
    }
  });
}

void backward(const RouteBackward& a) {
  const int64_t E = a.logits.shape[1], k = a.experts.shape[1];
  parallel_blocks(a.logits.shape[0], rows_of_task(E), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      float* const dlogits = a.dlogits.as<float>() + row * E;
      if (a.experts.as<int32_t>()[row * k] < 0) {
        std::fill_n(dlogits, E, 0.0f);
        continue;
      }
      if (a.rule.sigmoid) {
        sigmoid_gradient(a, row, dlogits);
        continue;
      }
      const Softmax p(a.logits.as<float>() + row * E, E);
      weights_gradient(a, row, p, dlogits);
      if (!a.factors.empty()) add_auxiliary(a, row, p, dlogits);
    }
  });
}

}  // namespace

void route_forward(Stream& stream, const RouteForward& a) {
  check_route("route_forward", a);
  if (!a.targets.empty())
    check_each("route_forward", "targets", a.targets, DType::i32, a.logits.shape[0], "tokens");
  if (!a.bias.empty()) check_elements("route_forward", "bias", a.bias, DType::f32, a.logits.shape[1]);
  check(a.bias.empty() || a.rule.sigmoid, "route_forward: a bias takes sigmoid");
  if (plans(stream, "route_forward", a, a.logits)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::route_forward(stream, a);
  stream.run("route_forward", [a] { forward(a); });
}

void route_backward(Stream& stream, const RouteBackward& a) {
  check_route("route_backward", a);
  check_like("route_backward", "dlogits", a.dlogits, "logits", a.logits);
  check_elements("route_backward", "dweights", a.dweights, DType::f32, a.experts.size());
  if (!a.factors.empty()) check_elements("route_backward", "factors", a.factors, DType::f32, 2);
  check(a.factors.empty() || !a.rule.sigmoid, "route_backward: sigmoid has no auxiliary losses");
  if (!a.counts.empty()) check_elements("route_backward", "counts", a.counts, DType::i32, a.logits.shape[1]);
  if (!a.losses.empty())
    check_elements("route_backward", "losses", a.losses, DType::f32, 2 * a.logits.shape[0]);
  if (plans(stream, "route_backward", a, a.logits)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::route_backward(stream, a);
  stream.run("route_backward", [a] { backward(a); });
}

double min_bytes(const RouteForward& a) { return bytes_of(a.experts, a.weights, a.logits, a.targets); }
double min_bytes(const RouteBackward& a) {
  return bytes_of(a.dlogits, a.dweights, a.experts, a.weights, a.logits, a.counts, a.losses, a.losses);
}
double flops(const RouteForward& a) { return static_cast<double>(4 * a.logits.size()); }
double flops(const RouteBackward& a) { return static_cast<double>(8 * a.logits.size()); }

}  // namespace flatshard
