#include "train/step/losses.h"

#include <algorithm>
#include <numeric>

#include "comm/sharded_unit.h"

namespace flatshard {

GatheredLosses gather_losses(World& world, const RunSetup& setup, std::span<const double> losses,
                             std::span<const double> sequences, std::span<const double> notes) {
  std::vector<double> mine(losses.begin(), losses.end());
  mine.insert(mine.end(), sequences.begin(), sequences.end());
  mine.insert(mine.end(), notes.begin(), notes.end());
  const std::vector<double> all = world.all_gather(mine, "losses");
  const size_t ranks = static_cast<size_t>(setup.groups.ranks), rows = sequences.size() / losses.size();
  std::vector<double> in_order(losses.size() * ranks);
  GatheredLosses gathered{.sequences = std::vector<double>(sequences.size() * ranks), .notes = {}};
  for (int rank = 0; rank < world.size(); ++rank) {
    const double* const values = &all[static_cast<size_t>(rank) * mine.size()];
    for (int64_t local = 0, lanes = setup.batching.lanes; local < std::ssize(losses); ++local) {
      const auto lane = static_cast<size_t>(lane_part_of(setup.units, setup.groups, setup.data_rank(rank),
                                                         local / lanes, local % lanes)),
                 at = static_cast<size_t>(local);
      in_order[lane] += values[local];  // 0 except in the last stage
      for (size_t row = 0; row < rows; ++row)
        gathered.sequences[lane * rows + row] += values[losses.size() + at * rows + row];
    }
    gathered.notes.emplace_back(values + losses.size() + sequences.size(), values + mine.size());
  }
  for (const double loss : in_order) gathered.sum += loss;
  return gathered;
}

std::vector<FileLoss> losses_by_file(const Data& data, int64_t data_step, std::span<const double> sequences,
                                     std::span<const int64_t> targets) {
  std::vector<double> sums(targets.size());
  for (size_t i = 0; i < sequences.size(); ++i)
    if (const auto source = data.source_of(data_step, static_cast<int64_t>(i))) sums[*source] += sequences[i];
  const auto all = static_cast<double>(std::accumulate(targets.begin(), targets.end(), int64_t{0}));
  std::vector<FileLoss> files;
  for (size_t i = 0; i < sums.size(); ++i)
    if (targets[i] > 0) files.push_back({i, sums[i] * all / static_cast<double>(targets[i]), targets[i]});
  return files;
}

std::vector<double> values_of(std::span<const AnswerSums> answers) {
  std::vector<double> values;
  for (AnswerSums sums : answers) values.insert(values.end(), sums.values().begin(), sums.values().end());
  return values;
}

std::vector<AnswerSums> answers_in(std::span<const double> values) {
  std::vector<AnswerSums> answers(values.size() / AnswerSums::kCount);
  for (size_t i = 0; i < answers.size(); ++i)
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i * AnswerSums::kCount), AnswerSums::kCount,
                answers[i].values().begin());
  return answers;
}

double baseline_of(const AnswerSums& sums) { return std::max(0.0, sums.gain_of_others / sums.examples); }

namespace {

// The mean loss, from the sums of all sequences with factors of 1.
double mean_loss(const AnswerLoss& loss, const AnswerSums& s) {
  const AnswerFactors factors = factors_of(loss, s.examples, s.tokens, s.chosen_tokens, 1);
  return s.loss * static_cast<double>(factors.mean) - s.chosen * static_cast<double>(factors.sft);
}

}  // namespace

namespace {

// One pass over the evaluation data.
std::optional<EvaluationLoss> evaluate_once(Engine& engine, const AnswerLoss& loss, const Data& data,
                                            const std::string& path, World& world,
                                            const std::function<bool()>& interrupted, double baseline) {
  constexpr size_t kOfSequence = 2 + AnswerSums::kCount;
  double sum = 0, targets = 0;
  AnswerSums answers;
  for (int64_t batch = 0; batch < data.steps_per_epoch(); ++batch) {
    std::vector<double> mine;  // {sum, targets, answers} of each row, and whether to stop
    for (const SequenceLoss& s : engine.evaluate(data, batch, baseline)) {
      mine.push_back(s.sum);
      mine.push_back(s.targets);
      const std::vector<double> values = values_of({&s.answers, 1});
      mine.insert(mine.end(), values.begin(), values.end());
    }
    mine.push_back(interrupted());
    const std::vector<double> all = world.all_gather(mine, "evaluation losses");
    bool stops = false;
    for (size_t begin = 0; begin < all.size(); begin += mine.size()) {
      const size_t end = begin + mine.size() - 1;
      for (size_t i = begin; i < end; i += kOfSequence) {
        sum += all[i];
        targets += all[i + 1];
        answers += answers_in({&all[i + 2], AnswerSums::kCount}).front();
      }
      stops = stops || all[end] != 0;
    }
    if (stops && batch + 1 < data.steps_per_epoch()) return {};
  }
  check(targets > 0, path, " has no targets to evaluate on");
  return EvaluationLoss{loss.is_used() ? mean_loss(loss, answers) : sum / targets, answers};
}

}  // namespace

// The first of two passes finds the baseline, where the loss has one.
std::optional<EvaluationLoss> evaluation_loss(Engine& engine, const AnswerLoss& loss, const Data& data,
                                              const std::string& path, World& world,
                                              const std::function<bool()>& interrupted) {
  const std::optional<EvaluationLoss> first = evaluate_once(engine, loss, data, path, world, interrupted, 0);
  if (!first || !loss.has_baseline()) return first;
  return evaluate_once(engine, loss, data, path, world, interrupted, baseline_of(first->answers));
}

}  // namespace flatshard
