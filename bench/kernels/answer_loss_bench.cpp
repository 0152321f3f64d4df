// Cases of the losses of whole answers, shared by tests and benchmark. Examples follow one another; their
// rows are cut at random places, and every seventh row has no target.

#include <algorithm>
#include <cmath>

#include "bench/case.h"
#include "kernels/answer_loss.h"

namespace flatshard::bench {
namespace {

struct Sizes {
  int64_t examples, rows;  // rows per example
  AnswerLoss loss;
};

constexpr float kFactor = 0.75f, kBaseline = 0.5f;

bool is_target(int64_t row) { return row % 7 != 3; }
// The values are multiples of 0.05, so that no ratio of tokens is within a numeric derivative of its clipping
// point.
double nll_of(double unit) { return 0.1 + 0.05 * std::floor(40 * unit); }

// The row after an example's first answer.
int64_t second_of(const Sizes& s, int64_t example) {
  const int64_t begin = example * s.rows;
  return s.loss.answers_of_example() == 2 ? begin + s.rows * (2 + example % 3) / 6 : begin + s.rows;
}

double log_sigmoid(double x) { return -std::log(1 + std::exp(-x)); }

double loss_of_pair(const Values& v, const Sizes& s, int64_t example) {
  const double beta = s.loss.beta;
  double logp[2] = {}, reference[2] = {}, tokens[2] = {};
  for (int64_t t = example * s.rows; t < (example + 1) * s.rows; ++t) {
    const int side = t < second_of(s, example) ? 0 : 1;
    if (!is_target(t)) continue;
    logp[side] -= v.at("nll")[t];
    tokens[side] += 1;
    if (s.loss.has_reference()) reference[side] += v.at("values")[t];
  }
  const double c = logp[0] - reference[0], r = logp[1] - reference[1];
  double loss = 0;
  if (s.loss.kind == LossKind::dpo)
    loss = -(1 - s.loss.label_smoothing) * log_sigmoid(beta * (c - r)) -
           s.loss.label_smoothing * log_sigmoid(beta * (r - c));
  if (s.loss.kind == LossKind::ipo) loss = std::pow(c / tokens[0] - r / tokens[1] - 1 / (2 * beta), 2);
  if (s.loss.kind == LossKind::orpo) {
    const double p = std::exp(c / tokens[0]), q = std::exp(r / tokens[1]);
    loss = -beta * log_sigmoid(std::log(p / (1 - p)) - std::log(q / (1 - q)));
  }
  return kFactor * loss - s.loss.sft_weight * logp[0];
}

double loss_of_label(const Values& v, const Sizes& s, int64_t example) {
  const int64_t N = s.examples * s.rows;
  double gain = 0, label = 0;
  for (int64_t t = example * s.rows; t < second_of(s, example); ++t)
    if (is_target(t)) {
      gain -= v.at("nll")[t] + v.at("values")[N + t];
      label = v.at("values")[t];
    }
  const double weight = label > 0 ? s.loss.desirable_weight : s.loss.undesirable_weight;
  return kFactor * weight / (1 + std::exp(label * s.loss.beta * (gain - kBaseline)));
}

double loss_of_rollout(const Values& v, const Sizes& s, int64_t example) {
  const int64_t N = s.examples * s.rows;
  std::vector<int64_t> targets;
  for (int64_t t = example * s.rows; t < (example + 1) * s.rows; ++t)
    if (is_target(t)) targets.push_back(t);
  const auto tokens = static_cast<double>(targets.size());
  const auto value = [&](int64_t row, int64_t t) { return v.at("values")[row * N + t]; };
  const auto log_ratio = [&](int64_t t) { return -v.at("nll")[t] - value(0, t); };
  double of_answer = 0;
  for (const int64_t t : targets) of_answer += log_ratio(t) / tokens;
  double loss = 0;
  for (const int64_t t : targets) {
    const double q = std::exp(s.loss.ratio == RatioOf::answer ? of_answer : log_ratio(t)), a = value(1, t);
    loss -= std::min(q * a, std::clamp(q, 1 - s.loss.clip_low, 1 + s.loss.clip_high) * a);
    if (!s.loss.has_reference()) continue;
    const double d = value(2, t) + v.at("nll")[t];
    loss += s.loss.kl_weight * (std::exp(d) - d - 1);
  }
  return kFactor * loss / (s.loss.mean == MeanOver::answers ? tokens : 1);
}

std::string name_of(const Sizes& s) {
  const AnswerLoss& l = s.loss;
  return str(s.examples, " x ", s.rows, ' ', l.kind, l.label_smoothing > 0 ? ", smoothed" : "",
             l.reference_free ? ", without a reference" : "",
             l.kind == LossKind::policy
                 ? str(", ratio of a", l.ratio == RatioOf::token ? " token" : "n answer", ", mean over ",
                       l.mean, l.kl_weight > 0 ? ", with KL" : "")
                 : "");
}

AnswerLossBackward arguments(const Tensors& t, const Sizes& s) {
  return {.dnll = t["dnll"],
          .nll = t["nll"],
          .targets = t["targets"],
          .inputs = {.loss = s.loss,
                     .factors = {kFactor, static_cast<float>(s.loss.sft_weight), kBaseline},
                     .examples = t["examples"],
                     .values = t.has("values") ? t["values"] : Tensor{}}};
}

Case backward_case(const Sizes& s) {
  const int64_t N = s.examples * s.rows, columns = std::ssize(columns_of(s.loss));
  Case c{
      .op = "answer_loss_backward",
      .shape = name_of(s),
      .dtype = DType::f32,
      .args = {{"nll", DType::f32, {N}, Role::input, [](int64_t, double unit) { return nll_of(unit); }},
               {"targets",
                DType::i32,
                {N},
                Role::constant,
                [](int64_t row, double) { return is_target(row) ? 1.0 : -100.0; }},
               {"examples",
                DType::i32,
                {s.examples, 3},
                Role::constant,
                [=](int64_t i, double) {
                  const int64_t example = i / 3;
                  return static_cast<double>(i % 3 == 0   ? example * s.rows
                                             : i % 3 == 1 ? second_of(s, example)
                                                          : (example + 1) * s.rows);
                }},
               {"dloss", DType::f32, {1}, Role::constant, [](int64_t, double) { return 1.0; }},
               {"dnll", DType::f32, {N}, Role::output}},
      .run = [=](Stream& stream, Arena&, const Tensors& t) { answer_loss_backward(stream, arguments(t, s)); },
      .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t, s)); },
      .flops = [=](const Tensors& t) { return flops(arguments(t, s)); },
      .reference =
          [=](Values& v) {
            v["loss"].assign(1, 0);
            for (int64_t example = 0; example < s.examples; ++example)
              v["loss"][0] += s.loss.kind == LossKind::kto ? loss_of_label(v, s, example)
                              : s.loss.has_pairs()         ? loss_of_pair(v, s, example)
                                                           : loss_of_rollout(v, s, example);
          },
      .gradients = true};
  // Log-probabilities in the reference and in sampling, and advantages of either sign.
  if (columns > 0)
    c.args.push_back({"values", DType::f32, {columns, N}, Role::constant, [=](int64_t i, double unit) {
                        if (s.loss.kind == LossKind::kto && i < N) return i / s.rows % 2 == 0 ? 1.0 : -1.0;
                        const bool advantage = s.loss.kind == LossKind::policy && i / N == 1;
                        return advantage ? 2 * unit - 0.9 : -nll_of(unit);
                      }});
  return c;
}

std::vector<AnswerLoss> losses() {
  const AnswerLoss dpo{.kind = LossKind::dpo, .beta = 0.3}, policy{.kind = LossKind::policy};
  AnswerLoss smoothed = dpo, free = dpo, ipo = dpo, orpo = dpo, answers = policy, with_kl = policy;
  smoothed.label_smoothing = 0.2;
  smoothed.sft_weight = 0.5;
  free.reference_free = true;
  ipo.kind = LossKind::ipo;
  orpo.kind = LossKind::orpo;
  AnswerLoss kto = dpo;
  kto.kind = LossKind::kto;
  kto.undesirable_weight = 1.5;
  answers.ratio = RatioOf::answer;
  answers.mean = MeanOver::answers;
  with_kl.kl_weight = 0.1;
  with_kl.clip_high = 0.28;
  AnswerLoss all = answers;
  all.kl_weight = 0.1;
  return {dpo, smoothed, free, ipo, orpo, kto, policy, answers, with_kl, all};
}

}  // namespace

std::vector<Case> answer_loss_cases(Scale scale) {
  std::vector<Case> cases;
  if (scale == Scale::golden || scale == Scale::vm) return cases;  // a kernel skips rows without a target
  for (const AnswerLoss& loss : losses()) {
    if (scale == Scale::test)
      for (const auto& [examples, rows] : {std::pair<int64_t, int64_t>{1, 6}, {3, 11}, {5, 40}})
        cases.push_back(backward_case({examples, rows, loss}));
    else
      cases.push_back(backward_case(scale == Scale::bench ? Sizes{64, 1024, loss} : Sizes{4, 600, loss}));
  }
  return cases;
}

}  // namespace flatshard::bench
