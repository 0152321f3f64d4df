#include "kernels/answer_loss.h"

#include <cmath>
#include <vector>

#include "kernels/answer_terms.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

// Two pairs: rows 0 to 3 and 4 to 8 of nine, with a target in every row but the last of each answer.
struct Pairs {
  StreamSet streams{Device::cpu()};
  Stream& stream = streams.add("compute");
  float nll[9] = {1, 0, 2, 0, 0.5f, 0.25f, 0, 3, 0}, reference[9] = {-1, 0, -2, 0, -1, -1, 0, -1, 0};
  float dnll[9] = {7, 7, 7, 7, 7, 7, 7, 7, 7}, sft = 0;
  int32_t targets[9] = {4, -100, 5, -100, 6, 7, -100, 8, -100}, examples[6] = {0, 2, 4, 4, 7, 9};

  AnswerLossBackward arguments(const AnswerLoss& loss) {
    return {.dnll = tensor_of(dnll, {9}),
            .nll = tensor_of(nll, {9}),
            .targets = tensor_of(targets, {9}),
            .inputs = {.loss = loss,
                       .factors = {.mean = 0.5f, .sft = sft},
                       .examples = tensor_of(examples, {2, 3}),
                       .values = loss.has_reference() ? tensor_of(reference, {1, 9}) : Tensor{}}};
  }
};

AnswerLoss dpo() { return {.kind = LossKind::dpo, .beta = 0.5}; }

}  // namespace

TEST_CASE("a policy that equals its reference has a loss of ln 2 and no preference") {
  Pairs pairs;
  const AnswerSums sums = sums_of_answers({.dnll = tensor_of(pairs.dnll, {9}),
                                           .nll = tensor_of(pairs.nll, {9}),
                                           .targets = tensor_of(pairs.targets, {9}),
                                           .inputs = pairs.arguments(dpo()).inputs,
                                           .end = 4});
  CHECK(sums.examples == 1);
  CHECK(sums.loss == doctest::Approx(0.5 * std::log(2.0)));
  CHECK(sums.chosen == -1);
  CHECK(sums.rejected == -2);
  CHECK(sums.correct == 0);
}

TEST_CASE("rewards are beta times what an answer has gained over the reference") {
  Pairs pairs;
  const AnswerSums sums = sums_of_answers(pairs.arguments(dpo()));
  CHECK(sums.examples == 2);
  CHECK(sums.chosen_reward == doctest::Approx(0.5 * (-0.75 + 2)));
  CHECK(sums.rejected_reward == doctest::Approx(0.5 * (-3 + 1)));
  CHECK(sums.correct == 1);
  CHECK(sums.tokens == 5);
}

TEST_CASE("the gradient raises chosen answers and lowers rejected ones, and leaves rows of other chunks") {
  Pairs pairs;
  AnswerLossBackward a = pairs.arguments(dpo());
  a.first = 4;
  answer_loss_backward(pairs.stream, a);
  pairs.stream.sync();
  for (int t = 0; t < 4; ++t) CHECK(pairs.dnll[t] == 7);
  const double margin = 0.5 * (-0.75 + 2 - (-3 + 1)), slope = 0.5 * 0.5 / (1 + std::exp(margin));
  CHECK(pairs.dnll[4] == doctest::Approx(slope));
  CHECK(pairs.dnll[5] == pairs.dnll[4]);
  CHECK(pairs.dnll[6] == 0);
  CHECK(pairs.dnll[7] == -pairs.dnll[4]);
  CHECK(pairs.dnll[8] == 0);
}

TEST_CASE("a weight of the chosen answers' loss adds to their gradient alone") {
  Pairs pairs;
  answer_loss_backward(pairs.stream, pairs.arguments(dpo()));
  pairs.stream.sync();
  const std::vector<float> without(pairs.dnll, pairs.dnll + 9);
  const double loss = sums_of_answers(pairs.arguments(dpo())).loss;
  pairs.sft = 0.25f;
  answer_loss_backward(pairs.stream, pairs.arguments(dpo()));
  pairs.stream.sync();
  CHECK(pairs.dnll[0] == doctest::Approx(without[0] + 0.25));
  CHECK(pairs.dnll[2] == without[2]);
  CHECK(sums_of_answers(pairs.arguments(dpo())).loss == doctest::Approx(loss + 0.25 * 1.75));
}

TEST_CASE("terms stay finite for answers that are certain, or impossible") {
  using answers::Answer;
  for (const double x : {-1e4, -50.0, 50.0, 1e4}) {
    const auto term = answers::dpo<double>({x, 5}, {0, 3}, 0.1, 0.1);
    CHECK(std::isfinite(term.loss));
    CHECK(std::isfinite(term.chosen));
  }
  const auto odds = answers::orpo<double>({-1e-9, 3}, {-1e4, 3}, 0.1);
  CHECK(std::isfinite(odds.loss));
  CHECK(std::isfinite(odds.chosen));
}

TEST_CASE("a ratio is clipped only where that lowers what the update gains") {
  const auto clipped = [](double ratio, double advantage) {
    return answers::clipped_ratio(std::log(ratio), advantage, 0.2, 0.3).clipped;
  };
  CHECK(clipped(1.5, 1));
  CHECK_FALSE(clipped(1.25, 1));
  CHECK_FALSE(clipped(0.5, 1));
  CHECK(clipped(0.5, -1));
  CHECK_FALSE(clipped(1.5, -1));
}

TEST_CASE("the columns that a loss reads") {
  CHECK(columns_of({.kind = LossKind::orpo}).empty());
  CHECK(columns_of(dpo()) == std::vector{AnswerColumn::reference});
  AnswerLoss free = dpo();
  free.reference_free = true;
  CHECK(columns_of(free).empty());
  CHECK(columns_of({.kind = LossKind::policy}).size() == 2);
  CHECK(columns_of({.kind = LossKind::policy, .kl_weight = 0.1}).size() == 3);
}
