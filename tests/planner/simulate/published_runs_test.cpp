#include "tests/planner/simulate/published_runs.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>

#include "tests/test.h"

using namespace flatshard;

namespace {

// Other trainers have other kernels. Four numbers for each trainer and GPU kind, fitted to its rows; of a
// kind with few rows they say little.
struct Fitted {
  const char *trainer, *gpu;
  OpProfile profile;
};
const std::vector<Fitted>& fitted() {
  static const std::vector<Fitted> all{
      {"fms-fsdp", "a100", {1.077, 0.683, 5.0, 45.87e-6}},
      {"fms-fsdp", "h100", {0.653, 1.977, 0.397, 0.76e-6}},
      {"llm-foundry", "a100", {1.051, 1.99, 3.597, 80e-6}},
      {"llm-foundry", "h100", {0.876, 0.451, 2.413, 40.23e-6}},
      {"nanotron", "h100", {0.689, 1.975, 0.423, 78.94e-6}},
      {"torchtitan", "a100", {0.946, 2.0, 5.0, 80e-6}},
      {"torchtitan", "h100", {0.579, 0.482, 0.402, 0}},
  };
  return all;
}

OpProfile profile_of(const test::PublishedRun& run) {
  for (const Fitted& f : fitted())
    if (std::string(f.trainer) == run.trainer && std::string(run.gpu).starts_with(f.gpu)) return f.profile;
  return {};
}

}  // namespace

TEST_CASE("simulated steps take as long as published ones, once four numbers of a trainer are known") {
  constexpr double kMean = 0.05, kMostOfNineTenths = 0.10;
  std::vector<double> errors;
  std::ostringstream table;
  double sum = 0;
  for (const test::PublishedRun& run : test::published_runs()) {
    const double ratio = test::predicted_rate(run, profile_of(run)) / run.tokens_per_second;
    const double alone = test::predicted_rate(run, {}) / run.tokens_per_second;
    errors.push_back(std::abs(ratio - 1));
    sum += errors.back();
    table << std::fixed << std::setprecision(1) << "\n| " << run.trainer << " | " << run.model << " | "
          << run.gpus << " x " << run.gpu << " | " << run.seq_len << " | " << run.micro_batch << " x "
          << run.accumulation << " | " << run.tokens_per_second << " | " << std::showpos << 100 * (ratio - 1)
          << " % | " << 100 * (alone - 1) << " % |";
    table << std::noshowpos;
  }
  MESSAGE(table.str());
  std::sort(errors.begin(), errors.end());
  CHECK(sum / static_cast<double>(errors.size()) < kMean);
  CHECK(errors[errors.size() * 9 / 10] < kMostOfNineTenths);
}

TEST_CASE("a GPU's rate falls from few GPUs to many as published, once a trainer is known") {
  // The runs of one model on one kind that differ in the number of GPUs alone.
  constexpr double kError = 0.04;
  const test::PublishedRun* eight = nullptr;
  for (const test::PublishedRun& run : test::published_runs()) {
    if (std::string(run.model) != "MPT-1b" || std::string(run.gpu) != "h100-80gb") continue;
    if (!eight) {
      eight = &run;
      continue;
    }
    const double measured = run.tokens_per_second / eight->tokens_per_second,
                 predicted = test::predicted_rate(run, profile_of(run)) /
                             test::predicted_rate(*eight, profile_of(*eight));
    CHECK(predicted / measured == doctest::Approx(1).epsilon(kError));
  }
  CHECK(eight);
}
