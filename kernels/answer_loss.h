#pragma once
// The gradient of losses that depend on whole answers (answer_terms.h), as the derivative by the loss of each
// token:
//   dnll = d loss / d nll     nll = -ln p of the target
// An example is one answer or two. Two answers are a pair, chosen and rejected. For kto the first answer is
// good or bad; the second one belongs to another prompt, has no gradient, and only measures what answers gain
// at random. The gradient of the parameters is then the sum of dnll d nll, as with any weights of targets
// (cross_entropy.h).
//
// The loss of a step is a mean over all its examples, or over all their tokens. The factors are the inverses
// of these numbers, times the loss scale, so the loss does not depend on ranks and micro-batches.

#include <array>
#include <span>
#include <vector>

#include "runtime/named.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

// sft is the plain mean of the targets' losses; it needs nothing else in this file.
enum class LossKind { sft, dpo, ipo, orpo, kto, policy };
constexpr auto value_names(LossKind) { return std::array{"sft", "dpo", "ipo", "orpo", "kto", "policy"}; }

enum class RatioOf { token, answer };
constexpr auto value_names(RatioOf) { return std::array{"token", "answer"}; }
enum class MeanOver { tokens, answers };
constexpr auto value_names(MeanOver) { return std::array{"tokens", "answers"}; }

struct AnswerLoss {
  LossKind kind = LossKind::sft;
  // Settings of the losses of pairs and labels.
  double beta = 0.1, label_smoothing = 0;
  bool reference_free = false;
  double sft_weight = 0;  // weight of the added mean loss of the chosen answers' tokens; see weight_of_sft
  double desirable_weight = 1, undesirable_weight = 1;  // kto only
  // Settings of the policy loss.
  double clip_low = 0.2, clip_high = 0.2, kl_weight = 0;
  RatioOf ratio = RatioOf::token;
  MeanOver mean = MeanOver::tokens;

  double weight_of_sft() const { return kind == LossKind::orpo ? 1 : sft_weight; }  // orpo includes the term
  bool is_used() const { return kind != LossKind::sft; }
  bool has_pairs() const { return kind == LossKind::dpo || kind == LossKind::ipo || kind == LossKind::orpo; }
  bool has_baseline() const { return kind == LossKind::kto; }
  int answers_of_example() const { return has_pairs() || kind == LossKind::kto ? 2 : 1; }
  bool has_reference() const;
  bool is_over_tokens() const { return kind == LossKind::policy && mean == MeanOver::tokens; }
};

// The values of each target that a loss reads besides its nll. The advantage of a good answer is 1, that of a
// bad answer -1.
enum class AnswerColumn { reference, sampled, advantage };
// The columns that a loss reads, in the order of their rows in `values`.
std::vector<AnswerColumn> columns_of(const AnswerLoss& loss);

// The factors of a loss, times its loss scale, and the baseline that kto compares gains with.
struct AnswerFactors {
  float mean = 0;  // 1 / examples, or 1 / tokens
  float sft = 0;   // weight_of_sft() / tokens of chosen answers
  float baseline = 0;
};
// `tokens` counts the targets of all answers, `chosen_tokens` the targets of the first answer of each
// example.
AnswerFactors factors_of(const AnswerLoss& loss, double examples, double tokens, double chosen_tokens,
                         double scale);

// The inputs of a loss beside the nll of N targets.
struct AnswerInputs {
  AnswerLoss loss{};
  AnswerFactors factors{};
  Tensor examples{};  // (E, 3) i32: the rows where an example begins, its second answer begins, and it ends;
                      // for a single answer the last two are equal
  Tensor values{};    // (columns_of(loss), N) f32
};

// Writes dnll of the examples in rows [first, end): 0 where there is no target. Other rows keep their values.
struct AnswerLossBackward {
  Tensor dnll;     // (N) f32
  Tensor nll;      // (N) f32
  Tensor targets;  // (N) i32; negative: none
  AnswerInputs inputs;
  int64_t first = 0, end = 0;  // range of rows that contains whole examples; end 0: N
};

void answer_loss_backward(Stream& stream, const AnswerLossBackward& a);

double min_bytes(const AnswerLossBackward& a);
double flops(const AnswerLossBackward& a);

// The metrics of a run, summed over examples: the loss with its factors; the other members only for losses of
// pairs or answers.
struct AnswerSums {
  double loss = 0, examples = 0;
  double chosen = 0, rejected = 0;                // ln p of pairs
  double chosen_reward = 0, rejected_reward = 0;  // beta times (ln p minus the reference's ln p)
  double correct = 0;                             // pairs whose chosen answer has the higher reward
  double tokens = 0, chosen_tokens = 0;           // targets
  double clipped = 0, divergence = 0;             // policy: clipped targets, and KL
  double desirable = 0,
         gain_of_others = 0;  // kto: good answers, summed as chosen ones; gain of other prompts' answers

  static constexpr size_t kCount = 13;
  std::span<double, kCount> values() { return std::span<double, kCount>(&loss, kCount); }
  AnswerSums& operator+=(const AnswerSums& more);
};
static_assert(sizeof(AnswerSums) == AnswerSums::kCount * sizeof(double));

// The sums over the examples in rows [first, end), computed on the host.
AnswerSums sums_of_answers(const AnswerLossBackward& a);

namespace cuda {
void answer_loss_backward(Stream& stream, const AnswerLossBackward& a);  // `end` must be set
}  // namespace cuda

}  // namespace flatshard
