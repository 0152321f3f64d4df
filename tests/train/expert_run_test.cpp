// Runs of mixtures of experts, through the program train.

#include <cmath>

#include "tests/test.h"
#include "tests/workshop.h"
#include "train/report/metrics.h"

using namespace flatshard;

namespace {

const std::string kMixture =
    "--model.family=mixtral --model.ffn=32 --model.experts=4 --model.experts_per_token=2 "
    "--precision.compute=fp32 --train.router_aux_loss=0.5 --train.router_z_loss=0.1 --data.packing=none ";

std::vector<StepMetrics> metrics_of(const test::Workshop& workshop, int ranks, const std::string& options) {
  const test::Finished run = workshop.train(ranks, kMixture + options);
  REQUIRE_MESSAGE(run.exit_code == 0, run.output);
  return read_metrics(workshop.file("runs/default/metrics.jsonl"));
}

double metric(const StepMetrics& m, const std::string& name) {
  for (const auto& [key, value] : m.experts)
    if (key == name) return value;
  return NAN;
}

}  // namespace

// Sequences hold the same documents, with more padding behind them. The routers' losses are large, and would
// be smaller for each row of padding.
TEST_CASE("padding changes neither the losses of a mixture nor the loads of its experts") {
  const test::Workshop workshop("expert_padding");
  constexpr double kRounding = 1e-5;  // sums over rows in another order
  const std::vector<StepMetrics> few = metrics_of(workshop, 1, "--data.seq_len=34 --train.lane_size=2"),
                                 many = metrics_of(workshop, 1, "--data.seq_len=60 --train.lane_size=2");
  REQUIRE(few.size() == many.size());
  for (size_t i = 0; i < few.size(); ++i) {
    CHECK(std::abs(many[i].loss / few[i].loss - 1) < kRounding);
    CHECK(std::abs(many[i].grad_norm / few[i].grad_norm - 1) < 10 * kRounding);
    CHECK(metric(many[i], "max_load") == doctest::Approx(metric(few[i], "max_load")));
    CHECK(metric(many[i], "entropy") == doctest::Approx(metric(few[i], "entropy")));
  }
}

TEST_CASE("the loads of experts are those of all ranks") {
  const test::Workshop workshop("expert_loads");
  const std::vector<StepMetrics> one = metrics_of(workshop, 1, "--data.seq_len=34");
  for (const StepMetrics& m : one) {
    CHECK(metric(m, "max_load") >= 1);
    CHECK(metric(m, "max_load") <= 2);  // all tokens go to one of four experts, and half of their choices
    CHECK(metric(m, "entropy") > 0);
    CHECK(metric(m, "entropy") <= 1);
    CHECK(metric(m, "unused") == 0);
  }
  if (const std::string reason = test::no_ranks_because(); !reason.empty()) return test::skip(reason);
  const std::vector<StepMetrics> two = metrics_of(workshop, 2, "--data.seq_len=34");
  for (size_t i = 0; i < one.size(); ++i) {
    CHECK(metric(two[i], "max_load") == metric(one[i], "max_load"));
    CHECK(metric(two[i], "entropy") == metric(one[i], "entropy"));
  }
}
