#include "kernels/route.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/expert_rows.h"
#include "kernels/grouped_product.h"
#include "runtime/targets.h"
#include "tests/kernels/random_draw.h"
#include "tests/test.h"

using namespace flatshard;
using test::below;
using test::Random;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Setting {
  int64_t N, E, k;
  RouteRule rule;
};

Setting draw(Random& random) {
  Setting s{.N = 1 + below(random, 150),
            .E = 1 + below(random, 40),
            .k = 0,
            .rule = {.normalized = below(random, 2) == 0}};
  s.k = 1 + below(random, s.E);
  return s;
}

// By sigmoid, in groups.
Setting draw_sigmoid(Random& random) {
  Setting s{.N = 1 + below(random, 100), .E = 0, .k = 0, .rule = {.sigmoid = true}};
  s.rule.normalized = below(random, 2) == 0;
  s.rule.groups = below(random, 3) == 0 ? 1 : 1 + below(random, 6);
  s.E = s.rule.groups * (2 + below(random, 6));
  s.rule.top_groups = 1 + below(random, s.rule.groups);
  s.rule.scale = below(random, 2) == 0 ? 1 : 2.5f;
  s.k = 1 + below(random, s.E / s.rule.groups * s.rule.top_groups);
  return s;
}

// Values from -3 to 3 in steps, so that some are equal.
std::vector<float> some_values(Random& random, int64_t count, int64_t steps) {
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<float>(below(random, 6 * steps) - 3 * steps) / static_cast<float>(steps));
  return values;
}

struct Route {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};
Route route(Stream& stream, const Setting& s, std::vector<float>& logits, std::vector<float> bias = {}) {
  Route r{std::vector<int32_t>(static_cast<size_t>(s.N * s.k)),
          std::vector<float>(static_cast<size_t>(s.N * s.k))};
  route_forward(stream, {.experts = tensor_of(r.experts.data(), {s.N, s.k}),
                         .weights = tensor_of(r.weights.data(), {s.N, s.k}),
                         .logits = tensor_of(logits.data(), {s.N, s.E}),
                         .bias = bias.empty() ? Tensor{} : tensor_of(bias.data(), {s.E}),
                         .rule = s.rule});
  stream.sync();
  return r;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The weights of chosen experts by sigmoid, in double.
std::vector<double> sigmoid_weights(const Setting& s, const double* logits, const int32_t* chosen) {
  std::vector<double> weights;
  double sum = 1e-20;
  for (int64_t j = 0; j < s.k; ++j) sum += sigmoid(logits[chosen[j]]);
  for (int64_t j = 0; j < s.k; ++j)
    weights.push_back(static_cast<double>(s.rule.scale) * sigmoid(logits[chosen[j]]) /
                      (s.rule.normalized ? sum : 1));
  return weights;
}

// The experts of a token by their scores: a stable sort of those in the best groups.
std::vector<int32_t> sorted_choice(const Setting& s, const std::vector<float>& scores) {
  const int64_t size = s.E / s.rule.groups;
  std::vector<int32_t> groups, order;
  std::vector<float> of_group;
  for (int64_t g = 0; g < s.rule.groups; ++g) {
    std::vector<float> own(scores.begin() + g * size, scores.begin() + (g + 1) * size);
    std::sort(own.rbegin(), own.rend());
    of_group.push_back(own[0] + own[1]);
    groups.push_back(static_cast<int32_t>(g));
  }
  const auto by = [](const std::vector<float>& values) {
    return [&values](int32_t a, int32_t b) {
      return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
    };
  };
  std::stable_sort(groups.begin(), groups.end(), by(of_group));
  groups.resize(static_cast<size_t>(s.rule.top_groups));
  for (int32_t e = 0; e < s.E; ++e)
    if (std::find(groups.begin(), groups.end(), e / size) != groups.end()) order.push_back(e);
  std::stable_sort(order.begin(), order.end(), by(scores));
  order.resize(static_cast<size_t>(s.k));
  return order;
}

// The sum of what the gradients belong to, in double, with the choice of `r`.
double objective(const Setting& s, const std::vector<double>& logits, const Route& r,
                 const std::vector<float>& dweights, const std::vector<int32_t>& counts, double balance,
                 double z) {
  double total = 0;
  for (int64_t t = 0; t < s.N; ++t) {
    std::vector<double> p(static_cast<size_t>(s.E));
    double sum = 0, chosen = 0;
    for (int64_t e = 0; e < s.E; ++e)
      sum += p[static_cast<size_t>(e)] = std::exp(logits[static_cast<size_t>(t * s.E + e)]);
    const auto at = [&](int64_t j) { return static_cast<size_t>(t * s.k + j); };
    for (int64_t j = 0; j < s.k; ++j) chosen += p[static_cast<size_t>(r.experts[at(j)])];
    for (int64_t j = 0; j < s.k; ++j)
      total += static_cast<double>(dweights[at(j)]) * p[static_cast<size_t>(r.experts[at(j)])] /
               (s.rule.normalized ? chosen : sum);
    for (int64_t e = 0; e < s.E && !counts.empty(); ++e)
      total += balance * counts[static_cast<size_t>(e)] * p[static_cast<size_t>(e)] / sum;
    total += z * std::log(sum) * std::log(sum);
  }
  return total;
}

}  // namespace

TEST_CASE("a token goes to the largest logits, equal ones by index, NaN last") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  const auto chosen = [&](std::vector<float> logits, int64_t k) {
    const Setting s{1, static_cast<int64_t>(logits.size()), k, {.normalized = true}};
    return route(stream, s, logits).experts;
  };
  CHECK(chosen({1, 3, 2, 3}, 3) == std::vector<int32_t>{1, 3, 2});
  CHECK(chosen({0, 0, 0, 0}, 2) == std::vector<int32_t>{0, 1});
  CHECK(chosen({kNan, 1, kNan, 2}, 3) == std::vector<int32_t>{3, 1, 0});
  CHECK(chosen({-INFINITY, -5, 4}, 3) == std::vector<int32_t>{2, 1, 0});
  CHECK(chosen({7}, 1) == std::vector<int32_t>{0});
}

TEST_CASE("the choice is a stable sort, and the weights are softmax values") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  Random random(3);
  for (int i = 0; i < 60; ++i) {
    const Setting s = draw(random);
    std::vector<float> logits = some_values(random, s.N * s.E, 7);
    const Route r = route(stream, s, logits);
    for (int64_t t = 0; t < s.N; ++t) {
      const float* const row = logits.data() + t * s.E;
      std::vector<int32_t> order(static_cast<size_t>(s.E));
      for (int64_t e = 0; e < s.E; ++e) order[static_cast<size_t>(e)] = static_cast<int32_t>(e);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return row[a] > row[b]; });
      double all = 0, of_chosen = 0;
      for (int64_t e = 0; e < s.E; ++e) all += std::exp(static_cast<double>(row[e]));
      for (int64_t j = 0; j < s.k; ++j)
        of_chosen += std::exp(static_cast<double>(row[order[static_cast<size_t>(j)]]));
      for (int64_t j = 0; j < s.k; ++j) {
        const auto at = static_cast<size_t>(t * s.k + j);
        CHECK(r.experts[at] == order[static_cast<size_t>(j)]);
        const double weight =
            std::exp(static_cast<double>(row[r.experts[at]])) / (s.rule.normalized ? of_chosen : all);
        CHECK(r.weights[at] == doctest::Approx(weight).epsilon(2e-6));
      }
    }
  }
}

TEST_CASE("the gradients of logits are finite differences of weights and auxiliary losses") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  Random random(4);
  for (int i = 0; i < 30; ++i) {
    const Setting s = draw(random);
    std::vector<float> logits = some_values(random, s.N * s.E, 97), dlogits(logits.size());
    const Route r = route(stream, s, logits);
    std::vector<float> dweights = some_values(random, s.N * s.k, 11);
    std::vector<int32_t> counts;
    for (int64_t e = 0; i % 2 == 0 && e < s.E; ++e) counts.push_back(static_cast<int32_t>(below(random, 9)));
    std::vector<float> factors{0.03f, i % 3 == 0 ? 0.2f : 0};
    const double balance = static_cast<double>(factors[0]), z = static_cast<double>(factors[1]);
    Route given = r;
    std::vector<float> losses(static_cast<size_t>(2 * s.N), 1.0f);
    route_backward(stream, {.dlogits = tensor_of(dlogits.data(), {s.N, s.E}),
                            .dweights = tensor_of(dweights.data(), {s.N, s.k}),
                            .experts = tensor_of(given.experts.data(), {s.N, s.k}),
                            .weights = tensor_of(given.weights.data(), {s.N, s.k}),
                            .logits = tensor_of(logits.data(), {s.N, s.E}),
                            .rule = s.rule,
                            .factors = tensor_of(factors.data(), {2}),
                            .counts = counts.empty() ? Tensor{} : tensor_of(counts.data(), {s.E}),
                            .losses = tensor_of(losses.data(), {s.N, 2})});
    stream.sync();
    std::vector<double> moved(logits.begin(), logits.end());
    double added = 0;
    for (const float loss : losses) added += static_cast<double>(loss) - 1;
    const std::vector<float> nothing(dweights.size());
    CHECK(added == doctest::Approx(objective(s, moved, r, nothing, counts, balance, z)).epsilon(1e-4));
    for (int probe = 0; probe < 20; ++probe) {
      const auto at = static_cast<size_t>(below(random, s.N * s.E));
      constexpr double kStep = 1e-4;
      const double before = moved[at];
      moved[at] = before + kStep;
      const double up = objective(s, moved, r, dweights, counts, balance, z);
      moved[at] = before - kStep;
      const double down = objective(s, moved, r, dweights, counts, balance, z);
      moved[at] = before;
      CHECK(std::abs((up - down) / (2 * kStep) - static_cast<double>(dlogits[at])) < 2e-5);
    }
  }
}

TEST_CASE("by sigmoid, tokens go to the best experts of the best groups, and bias changes only the choice") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  Random random(6);
  for (int i = 0; i < 60; ++i) {
    const Setting s = draw_sigmoid(random);
    std::vector<float> logits = some_values(random, s.N * s.E, 7), bias;
    if (i % 3 > 0) bias = some_values(random, s.E, 4);
    const Route r = route(stream, s, logits, bias);
    for (int64_t t = 0; t < s.N; ++t) {
      std::vector<float> scores;
      std::vector<double> row;
      for (int64_t e = 0; e < s.E; ++e) {
        row.push_back(static_cast<double>(logits[static_cast<size_t>(t * s.E + e)]));
        scores.push_back(static_cast<float>(sigmoid(row.back())) +
                         (bias.empty() ? 0 : bias[static_cast<size_t>(e)]));
      }
      const std::vector<int32_t> wanted = sorted_choice(s, scores),
                                 chosen(r.experts.begin() + t * s.k, r.experts.begin() + (t + 1) * s.k);
      CHECK(chosen == wanted);
      const std::vector<double> weights = sigmoid_weights(s, row.data(), chosen.data());
      for (int64_t j = 0; j < s.k; ++j)
        CHECK(r.weights[static_cast<size_t>(t * s.k + j)] ==
              doctest::Approx(weights[static_cast<size_t>(j)]).epsilon(2e-6));
    }
  }
}

TEST_CASE("the gradients of logits by sigmoid are finite differences of weights") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  Random random(7);
  for (int i = 0; i < 30; ++i) {
    const Setting s = draw_sigmoid(random);
    std::vector<float> logits = some_values(random, s.N * s.E, 97), dlogits(logits.size());
    Route r = route(stream, s, logits);
    std::vector<float> dweights = some_values(random, s.N * s.k, 11);
    route_backward(stream, {.dlogits = tensor_of(dlogits.data(), {s.N, s.E}),
                            .dweights = tensor_of(dweights.data(), {s.N, s.k}),
                            .experts = tensor_of(r.experts.data(), {s.N, s.k}),
                            .weights = tensor_of(r.weights.data(), {s.N, s.k}),
                            .logits = tensor_of(logits.data(), {s.N, s.E}),
                            .rule = s.rule});
    stream.sync();
    std::vector<double> moved(logits.begin(), logits.end());
    const auto total = [&](int64_t t) {
      const std::vector<double> weights =
          sigmoid_weights(s, moved.data() + t * s.E, r.experts.data() + t * s.k);
      double sum = 0;
      for (int64_t j = 0; j < s.k; ++j)
        sum +=
            weights[static_cast<size_t>(j)] * static_cast<double>(dweights[static_cast<size_t>(t * s.k + j)]);
      return sum;
    };
    for (int probe = 0; probe < 20; ++probe) {
      constexpr double kStep = 1e-4;
      const int64_t at = below(random, s.N * s.E);
      double& value = moved[static_cast<size_t>(at)];
      value += kStep;
      const double up = total(at / s.E);
      value -= 2 * kStep;
      const double down = total(at / s.E);
      value += kStep;
      CHECK(std::abs((up - down) / (2 * kStep) - static_cast<double>(dlogits[static_cast<size_t>(at)])) <
            2e-5);
    }
  }
}

TEST_CASE("rows of experts have the order of their tokens, in segments of whole pieces") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  Random random(5);
  for (int i = 0; i < 60; ++i) {
    const Setting s = draw(random);
    std::vector<float> logits = some_values(random, s.N * s.E, 5);
    Route r = route(stream, s, logits);
    const int64_t R = expert_row_count(s.N * s.k, s.E);
    std::vector<int32_t> offsets(static_cast<size_t>(s.E + 1)), rows(static_cast<size_t>(R)),
        places(r.experts.size()), counts(static_cast<size_t>(s.E), 1);
    expert_rows(stream, {.offsets = tensor_of(offsets.data(), {s.E + 1}),
                         .rows = tensor_of(rows.data(), {R}),
                         .places = tensor_of(places.data(), {s.N, s.k}),
                         .counts = tensor_of(counts.data(), {s.E}),
                         .experts = tensor_of(r.experts.data(), {s.N, s.k})});
    stream.sync();
    CHECK(offsets.front() == 0);
    CHECK(offsets.back() <= R);
    int64_t used = 0;
    for (size_t e = 0; e + 1 < offsets.size(); ++e) {
      CHECK(offsets[e] % kSegmentRows == 0);
      int32_t row = offsets[e], before = -1, count = 0;
      for (; row < offsets[e + 1] && rows[static_cast<size_t>(row)] >= 0; ++row, ++count) {
        CHECK(rows[static_cast<size_t>(row)] > before);
        before = rows[static_cast<size_t>(row)];
      }
      for (; row < offsets[e + 1]; ++row) CHECK(rows[static_cast<size_t>(row)] == -1);
      CHECK(offsets[e + 1] - offsets[e] - count < kSegmentRows);
      CHECK(counts[e] == count + 1);  // added to 1
      used += count;
    }
    CHECK(used == s.N * s.k);
    for (size_t at = 0; at < places.size(); ++at) {
      const int32_t place = places[at], expert = r.experts[at];
      CHECK(rows[static_cast<size_t>(place)] == static_cast<int32_t>(at) / s.k);
      CHECK(place >= offsets[static_cast<size_t>(expert)]);
      CHECK(place < offsets[static_cast<size_t>(expert) + 1]);
    }
  }
}

TEST_CASE("in turn, tokens go to the next experts, with the weights of their logits") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  constexpr int64_t kN = 7, kE = 5, kK = 3;
  std::vector<float> logits(kN * kE), weights(kN * kK);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * i % 11) / 4;
  std::vector<int32_t> experts(kN * kK);
  for (const bool sigmoid : {false, true}) {
    route_forward(stream, {.experts = tensor_of(experts.data(), {kN, kK}),
                           .weights = tensor_of(weights.data(), {kN, kK}),
                           .logits = tensor_of(logits.data(), {kN, kE}),
                           .rule = {.sigmoid = sigmoid, .normalized = true, .in_turn = true}});
    stream.sync();
    for (size_t t = 0; t < kN; ++t) {
      const auto score = [&](size_t j) {
        const double logit = static_cast<double>(logits[t * kE + (t * kK + j) % kE]);
        return sigmoid ? 1 / (1 + std::exp(-logit)) : std::exp(logit);
      };
      for (size_t j = 0; j < kK; ++j) {
        CHECK(experts[t * kK + j] == static_cast<int32_t>((t * kK + j) % kE));
        CHECK(weights[t * kK + j] == doctest::Approx(score(j) / (score(0) + score(1) + score(2))));
      }
    }
  }
}

TEST_CASE("a part of the experts has their rows from row 0 on, with their tokens and choices") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  Random random(8);
  for (int i = 0; i < 60; ++i) {
    const Setting s = draw(random);
    std::vector<float> logits = some_values(random, s.N * s.E, 5);
    Route r = route(stream, s, logits);
    const auto size = [](int64_t n) { return static_cast<size_t>(n); };
    const int64_t R = expert_row_count(s.N * s.k, s.E), n = 1 + below(random, s.E),
                  first = below(random, s.E - n + 1), P = expert_row_count(s.N * std::min(s.k, n), n);
    std::vector<int32_t> offsets(size(s.E + 1)), rows(size(R)), places(r.experts.size()),
        part_offsets(size(n + 1)), part_places(size(P)), part_rows(size(P)), choices(size(P));
    const Tensor all_offsets = tensor_of(offsets.data(), {s.E + 1}), all_rows = tensor_of(rows.data(), {R}),
                 all_places = tensor_of(places.data(), {s.N, s.k});
    expert_rows(stream, {.offsets = all_offsets,
                         .rows = all_rows,
                         .places = all_places,
                         .experts = tensor_of(r.experts.data(), {s.N, s.k})});
    expert_part(stream, {.offsets = tensor_of(part_offsets.data(), {n + 1}),
                         .places = tensor_of(part_places.data(), {P}),
                         .rows = tensor_of(part_rows.data(), {P}),
                         .choices = tensor_of(choices.data(), {P}),
                         .all_offsets = all_offsets,
                         .all_rows = all_rows,
                         .all_places = all_places,
                         .first = first});
    stream.sync();
    const int32_t begin = offsets[size(first)];
    for (int64_t e = 0; e <= n; ++e) CHECK(part_offsets[size(e)] == offsets[size(first + e)] - begin);
    for (int32_t row = 0; row < P; ++row) {
      const bool is_used = row < part_offsets[size(n)];
      CHECK(part_places[size(row)] == (is_used ? begin + row : -1));
      CHECK(part_rows[size(row)] == (is_used ? rows[size(begin + row)] : -1));
      const int32_t choice = choices[size(row)];
      if (part_rows[size(row)] < 0) {
        CHECK(choice == -1);
        continue;
      }
      CHECK(choice / s.k == part_rows[size(row)]);
      CHECK(places[size(choice)] == begin + row);
    }
  }
}

// The other tokens have the rows, values and gradients that they have without padding among them.
TEST_CASE("padding goes to no expert, and adds nothing to losses, gradients and counts") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  constexpr int64_t kE = 4, kK = 2, kC = 5;
  struct Result {
    std::vector<int32_t> experts, offsets, counts, rows, places;
    std::vector<float> weights, dlogits, y, dweights;
  };
  const auto result = [&](const std::vector<int64_t>& tokens, std::vector<int32_t> targets) {
    const int64_t N = std::ssize(tokens), R = expert_row_count(N * kK, kE);
    const auto size = [](int64_t count) { return static_cast<size_t>(count); };
    std::vector<float> logits, x(size(R * kC)), da(size(R * kC)), a(size(R * kC)), factors{0.3f, 0.2f};
    for (const int64_t t : tokens)
      for (int64_t e = 0; e < kE; ++e) logits.push_back(static_cast<float>((t * 5 + e * 3) % 7));
    Result r{.experts = std::vector<int32_t>(size(N * kK)),
             .offsets = std::vector<int32_t>(size(kE + 1)),
             .counts = std::vector<int32_t>(size(kE)),
             .rows = std::vector<int32_t>(size(R)),
             .places = std::vector<int32_t>(size(N * kK)),
             .weights = std::vector<float>(size(N * kK)),
             .dlogits = std::vector<float>(size(N * kE), 9.0f),
             .y = std::vector<float>(size(N * kC), 9.0f),
             .dweights = std::vector<float>(size(N * kK), 9.0f)};
    const Tensor experts = tensor_of(r.experts.data(), {N, kK}),
                 weights = tensor_of(r.weights.data(), {N, kK}), places = tensor_of(r.places.data(), {N, kK}),
                 dweights = tensor_of(r.dweights.data(), {N, kK}), in = tensor_of(logits.data(), {N, kE});
    route_forward(stream, {.experts = experts,
                           .weights = weights,
                           .logits = in,
                           .targets = targets.empty() ? Tensor{} : tensor_of(targets.data(), {N}),
                           .rule = {.normalized = true}});
    expert_rows(stream, {.offsets = tensor_of(r.offsets.data(), {kE + 1}),
                         .rows = tensor_of(r.rows.data(), {R}),
                         .places = places,
                         .counts = tensor_of(r.counts.data(), {kE}),
                         .experts = experts});
    stream.sync();
    for (size_t row = 0; row < size(R); ++row)
      for (size_t c = 0; r.rows[row] >= 0 && c < size(kC); ++c) {
        const auto value =
            static_cast<float>(tokens[static_cast<size_t>(r.rows[row])] + static_cast<int64_t>(c));
        x[row * size(kC) + c] = da[row * size(kC) + c] = a[row * size(kC) + c] = value;
      }
    combine_rows(stream, {.y = tensor_of(r.y.data(), {N, kC}),
                          .x = tensor_of(x.data(), {R, kC}),
                          .places = places,
                          .weights = weights});
    weigh_rows(stream, {.dweights = dweights,
                        .da = tensor_of(da.data(), {R, kC}),
                        .a = tensor_of(a.data(), {R, kC}),
                        .places = places,
                        .weights = weights});
    route_backward(stream, {.dlogits = tensor_of(r.dlogits.data(), {N, kE}),
                            .dweights = dweights,
                            .experts = experts,
                            .weights = weights,
                            .logits = in,
                            .rule = {.normalized = true},
                            .factors = tensor_of(factors.data(), {2}),
                            .counts = tensor_of(r.counts.data(), {kE})});
    stream.sync();
    return r;
  };
  const std::vector<int64_t> alone{0, 1, 3, 4, 6};
  const Result without = result(alone, {}),
               with = result({0, 1, 2, 3, 4, 5, 6},
                             {5, kIgnoredTarget, kPaddingTarget, 1, 1, kPaddingTarget, 2});
  CHECK(with.counts == without.counts);
  CHECK(with.offsets == without.offsets);
  const auto row_of = [](const auto& values, int64_t row, int64_t width) {
    return std::vector(values.begin() + row * width, values.begin() + (row + 1) * width);
  };
  for (size_t i = 0; i < alone.size(); ++i) {
    const int64_t t = alone[i], at = static_cast<int64_t>(i);
    CHECK(row_of(with.experts, t, kK) == row_of(without.experts, at, kK));
    CHECK(row_of(with.places, t, kK) == row_of(without.places, at, kK));
    CHECK(row_of(with.dlogits, t, kE) == row_of(without.dlogits, at, kE));
    CHECK(row_of(with.y, t, kC) == row_of(without.y, at, kC));
  }
  for (const int64_t t : {2, 5}) {
    CHECK(row_of(with.experts, t, kK) == std::vector<int32_t>(kK, -1));
    CHECK(row_of(with.places, t, kK) == std::vector<int32_t>(kK, -1));
    CHECK(row_of(with.dlogits, t, kE) == std::vector<float>(kE, 0.0f));
    CHECK(row_of(with.dweights, t, kK) == std::vector<float>(kK, 0.0f));
    CHECK(row_of(with.y, t, kC) == std::vector<float>(kC, 0.0f));
  }
}

TEST_CASE("rows are combined by weights, and weighed for the gradient") {
  StreamSet streams(Device::cpu());
  Stream& stream = streams.add("compute");
  Random random(6);
  constexpr int64_t kN = 9, kK = 3, kC = 37, kRows = 64;
  std::vector<float> x = some_values(random, kRows * kC, 50), addend = some_values(random, kN * kC, 50),
                     y(static_cast<size_t>(kN * kC)), weights = some_values(random, kN * kK, 9), da = x,
                     a = some_values(random, kRows * kC, 50), dweights(weights.size());
  std::vector<int32_t> places;
  for (int32_t i = 0; i < kN * kK; ++i) places.push_back(i * 11 % 64);
  const auto matrix = [](std::vector<float>& v, int64_t rows, int64_t columns) {
    return tensor_of(v.data(), {rows, columns});
  };
  for (const bool weighted : {false, true})
    for (const bool adds : {false, true}) {
      combine_rows(stream, {.y = matrix(y, kN, kC),
                            .x = matrix(x, kRows, kC),
                            .places = tensor_of(places.data(), {kN, kK}),
                            .weights = weighted ? matrix(weights, kN, kK) : Tensor{},
                            .addend = adds ? matrix(addend, kN, kC) : Tensor{}});
      stream.sync();
      for (int64_t t = 0; t < kN; ++t)
        for (int64_t c = 0; c < kC; ++c) {
          double expected = adds ? static_cast<double>(addend[static_cast<size_t>(t * kC + c)]) : 0;
          for (int64_t j = 0; j < kK; ++j) {
            const auto at = static_cast<size_t>(t * kK + j);
            expected += (weighted ? static_cast<double>(weights[at]) : 1) *
                        static_cast<double>(x[static_cast<size_t>(places[at] * kC + c)]);
          }
          CHECK(y[static_cast<size_t>(t * kC + c)] == doctest::Approx(expected).epsilon(1e-5));
        }
    }
  const std::vector<float> da_before = da, a_before = a;
  weigh_rows(stream, {.dweights = matrix(dweights, kN, kK),
                      .da = matrix(da, kRows, kC),
                      .a = matrix(a, kRows, kC),
                      .places = tensor_of(places.data(), {kN, kK}),
                      .weights = matrix(weights, kN, kK)});
  stream.sync();
  for (size_t i = 0; i < places.size(); ++i) {
    double dot = 0;
    for (int64_t c = 0; c < kC; ++c) {
      const auto at = static_cast<size_t>(places[i] * kC + c);
      dot += static_cast<double>(da_before[at]) * static_cast<double>(a_before[at]);
      CHECK(da[at] == da_before[at] * weights[i]);
      CHECK(a[at] == a_before[at] * weights[i]);
    }
    CHECK(dweights[i] == doctest::Approx(dot).epsilon(1e-4));
  }
}
