#include "kernels/answer_loss.h"

#include <algorithm>
#include <optional>

#include "build_config.h"
#include "kernels/answer_terms.h"
#include "kernels/op.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

void check_arguments(const AnswerLossBackward& a) {
  constexpr const char* kOp = "answer_loss_backward";
  const AnswerInputs& in = a.inputs;
  const int64_t N = a.dnll.size();
  check(in.loss.is_used(), kOp, ": the loss is ", in.loss.kind, ", which depends on no whole answers");
  check(a.dnll.dtype == DType::f32 && a.nll.dtype == DType::f32 && a.nll.size() == N, kOp, ": dnll is ",
        a.dnll.dtype, ' ', a.dnll.shape, ", nll ", a.nll.dtype, ' ', a.nll.shape,
        ", must be f32 with one element for each token");
  check_each(kOp, "targets", a.targets, DType::i32, N, "tokens");
  check(in.examples.dtype == DType::i32 && in.examples.shape.rank() == 2 && in.examples.shape[1] == 3, kOp,
        ": examples are ", in.examples.dtype, ' ', in.examples.shape, ", must be i32 (examples, 3)");
  const int64_t columns = std::ssize(columns_of(in.loss));
  check(in.values.size() == columns * N && (columns == 0 || in.values.dtype == DType::f32), kOp,
        ": values are ", in.values.dtype, ' ', in.values.shape, ", must be f32 (", columns, ", ", N, ")");
  check(a.first >= 0 && a.first <= a.end && a.end <= N, kOp, ": rows ", a.first, " to ", a.end,
        " are not among ", N);
}

AnswerLossBackward with_end(AnswerLossBackward a) {
  if (a.end == 0) a.end = a.dnll.size();
  return a;
}

}  // namespace

namespace cpu {
namespace {

// One example: the rows that its loss reads, and sums over its answers.
class Example {
 public:
  Example(const AnswerLossBackward& a, int64_t index)
      : loss_(a.inputs.loss),
        factors_(a.inputs.factors),
        nll_(a.nll.as<float>()),
        targets_(a.targets.as<int32_t>()) {
    const int32_t* const rows = a.inputs.examples.as<int32_t>() + 3 * index;
    begin_ = rows[0], second_ = rows[1], end_ = rows[2];
    const float* column = a.inputs.values.as<float>();
    for (const AnswerColumn of : columns_of(loss_)) {
      columns_[static_cast<size_t>(of)] = column;
      column += a.nll.size();
    }
  }

  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }

  // Writes dnll of every row.
  void write(float* dnll) const {
    std::fill(dnll + begin_, dnll + end_, 0.0f);
    if (loss_.has_pairs()) {
      const answers::PairTerm<double> term =
          answers::of_pair(loss_.kind, loss_.beta, loss_.label_smoothing, first(), second());
      each_target(begin_, second_, [&](int64_t t) {
        dnll[t] = static_cast<float>(-term.chosen * factors_.mean + factors_.sft);
      });
      each_target(second_, end_,
                  [&](int64_t t) { dnll[t] = static_cast<float>(-term.rejected * factors_.mean); });
      return;
    }
    if (loss_.kind == LossKind::kto) {
      const double weight = weight_of_label() * static_cast<double>(factors_.mean), slope = kto().slope;
      each_target(begin_, second_, [&](int64_t t) { dnll[t] = static_cast<float>(-slope * weight); });
      return;
    }
    const double tokens = tokens_in(begin_, end_), mean = mean_of(tokens);
    const std::optional<double> of_answer = answer_log_ratio(tokens);
    const double slopes =
        of_answer ? sum_of(begin_, end_, [&](int64_t t) { return ratio(t, of_answer).slope; }) : 0;
    each_target(begin_, end_, [&](int64_t t) {
      const double slope =
          (of_answer ? slopes / tokens : ratio(t, of_answer).slope) + loss_.kl_weight * divergence(t).slope;
      dnll[t] = static_cast<float>(-slope * mean);
    });
  }

  AnswerSums sums() const {
    AnswerSums s{.examples = 1};
    if (loss_.has_pairs()) {
      const answers::Answer<double> c = first(), r = second();
      s.chosen = logprob_in(begin_, second_);
      s.rejected = logprob_in(second_, end_);
      s.loss = answers::of_pair(loss_.kind, loss_.beta, loss_.label_smoothing, c, r).loss * factors_.mean -
               s.chosen * factors_.sft;
      const bool by_token = loss_.kind == LossKind::orpo;  // orpo's rewards are per token
      s.chosen_reward = loss_.beta * c.logprob / (by_token ? c.tokens : 1);
      s.rejected_reward = loss_.beta * r.logprob / (by_token ? r.tokens : 1);
      s.correct = s.chosen_reward > s.rejected_reward ? 1 : 0;
      s.tokens = c.tokens + r.tokens;
      s.chosen_tokens = c.tokens;
      return s;
    }
    if (loss_.kind == LossKind::kto) {
      const answers::Answer<double> own = first();
      s.loss = kto().loss * weight_of_label() * static_cast<double>(factors_.mean);
      s.desirable = label() > 0 ? 1 : 0;
      (label() > 0 ? s.chosen : s.rejected) = logprob_in(begin_, second_);
      (label() > 0 ? s.chosen_reward : s.rejected_reward) = loss_.beta * own.logprob;
      s.gain_of_others = second().logprob;
      s.divergence = static_cast<double>(factors_.baseline);
      s.tokens = own.tokens;
      return s;
    }
    s.tokens = tokens_in(begin_, end_);
    const double mean = mean_of(s.tokens);
    const std::optional<double> of_answer = answer_log_ratio(s.tokens);
    each_target(begin_, end_, [&](int64_t t) {
      const answers::RatioTerm<double> term = ratio(t, of_answer);
      const double distance = divergence(t).loss;
      s.loss += mean * (term.loss + loss_.kl_weight * distance);
      s.clipped += term.clipped ? 1 : 0;
      s.divergence += distance;
    });
    return s;
  }

 private:
  template <class Visit>
  void each_target(int64_t begin, int64_t end, Visit&& visit) const {
    for (int64_t t = begin; t < end; ++t)
      if (targets_[t] >= 0) visit(t);
  }
  template <class Value>
  double sum_of(int64_t begin, int64_t end, Value&& value) const {
    double sum = 0;
    each_target(begin, end, [&](int64_t t) { sum += value(t); });
    return sum;
  }
  double column(AnswerColumn of, int64_t t) const {
    const float* const values = columns_[static_cast<size_t>(of)];
    return values ? static_cast<double>(values[t]) : 0;
  }
  double logprob(int64_t t) const { return -static_cast<double>(nll_[t]); }
  double tokens_in(int64_t begin, int64_t end) const {
    return sum_of(begin, end, [](int64_t) { return 1.0; });
  }
  double logprob_in(int64_t begin, int64_t end) const {
    return sum_of(begin, end, [&](int64_t t) { return logprob(t); });
  }
  answers::Answer<double> answer(int64_t begin, int64_t end) const {
    const double reference =
        sum_of(begin, end, [&](int64_t t) { return column(AnswerColumn::reference, t); });
    return {logprob_in(begin, end) - reference, tokens_in(begin, end)};
  }
  answers::Answer<double> first() const { return answer(begin_, second_); }
  answers::Answer<double> second() const { return answer(second_, end_); }

  double label() const {
    double label = 0;
    each_target(begin_, second_, [&](int64_t t) { label = column(AnswerColumn::advantage, t); });
    return label;
  }
  double weight_of_label() const { return label() > 0 ? loss_.desirable_weight : loss_.undesirable_weight; }
  answers::TokenTerm<double> kto() const {
    return answers::kto(first().logprob, static_cast<double>(factors_.baseline), label(), loss_.beta);
  }
  double mean_of(double tokens) const {
    return static_cast<double>(factors_.mean) / (loss_.mean == MeanOver::answers ? tokens : 1);
  }
  double log_ratio(int64_t t) const { return logprob(t) - column(AnswerColumn::sampled, t); }
  // The ratio of the whole answer; nullopt if every token has its own ratio.
  std::optional<double> answer_log_ratio(double tokens) const {
    if (loss_.ratio == RatioOf::token) return {};
    return sum_of(begin_, end_, [&](int64_t t) { return log_ratio(t); }) / tokens;
  }
  answers::RatioTerm<double> ratio(int64_t t, std::optional<double> of_answer) const {
    return answers::clipped_ratio(of_answer ? *of_answer : log_ratio(t), column(AnswerColumn::advantage, t),
                                  loss_.clip_low, loss_.clip_high);
  }
  answers::TokenTerm<double> divergence(int64_t t) const {
    if (!loss_.has_reference()) return {0, 0};
    return answers::divergence(logprob(t), column(AnswerColumn::reference, t));
  }

  const AnswerLoss& loss_;
  AnswerFactors factors_;
  const float* nll_;
  const int32_t* targets_;
  int64_t begin_, second_, end_;
  std::array<const float*, 3> columns_{};
};

// Calls visit(example) for each example in [begin, end) whose rows are in the range of the arguments.
template <class Visit>
void each_example(const AnswerLossBackward& a, int64_t begin, int64_t end, Visit&& visit) {
  for (int64_t i = begin; i < end; ++i) {
    const Example example(a, i);
    if (example.begin() >= a.first && example.end() <= a.end) visit(example);
  }
}

}  // namespace
}  // namespace cpu

bool AnswerLoss::has_reference() const {
  if (kind == LossKind::policy) return kl_weight > 0;
  return kind == LossKind::ipo || kind == LossKind::kto || (kind == LossKind::dpo && !reference_free);
}

std::vector<AnswerColumn> columns_of(const AnswerLoss& loss) {
  std::vector<AnswerColumn> columns;
  if (loss.kind == LossKind::policy) columns = {AnswerColumn::sampled, AnswerColumn::advantage};
  if (loss.kind == LossKind::kto) columns = {AnswerColumn::advantage};
  if (loss.has_reference()) columns.push_back(AnswerColumn::reference);
  return columns;
}

AnswerFactors factors_of(const AnswerLoss& loss, double examples, double tokens, double chosen_tokens,
                         double scale) {
  AnswerFactors factors{.mean = static_cast<float>(scale / (loss.is_over_tokens() ? tokens : examples))};
  if (const double weight = loss.weight_of_sft(); loss.has_pairs() && weight > 0)
    factors.sft = static_cast<float>(scale * weight / chosen_tokens);
  return factors;
}

AnswerSums& AnswerSums::operator+=(const AnswerSums& more) {
  AnswerSums other = more;
  for (size_t i = 0; i < kCount; ++i) values()[i] += other.values()[i];
  return *this;
}

void answer_loss_backward(Stream& stream, const AnswerLossBackward& arguments) {
  const AnswerLossBackward a = with_end(arguments);
  check_arguments(a);
  if (a.inputs.examples.empty() || plans(stream, "answer_loss_backward", a, a.dnll)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::answer_loss_backward(stream, a);
  stream.run("answer_loss_backward", [a] {
    parallel_blocks(a.inputs.examples.shape[0], 1, [&](int64_t begin, int64_t end) {
      cpu::each_example(a, begin, end,
                        [&](const cpu::Example& example) { example.write(a.dnll.as<float>()); });
    });
  });
}

AnswerSums sums_of_answers(const AnswerLossBackward& arguments) {
  const AnswerLossBackward a = with_end(arguments);
  check_arguments(a);
  AnswerSums all;
  cpu::each_example(a, 0, a.inputs.examples.shape[0],
                    [&](const cpu::Example& example) { all += example.sums(); });
  return all;
}

double min_bytes(const AnswerLossBackward& a) {
  return bytes_of(a.dnll, a.nll, a.targets, a.inputs.values, a.inputs.examples);
}
double flops(const AnswerLossBackward& a) { return 4.0 * static_cast<double>(a.nll.size()); }

}  // namespace flatshard
