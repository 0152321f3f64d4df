#pragma once
// The losses of a step and of an evaluation, over all ranks: sums in a fixed order, on any number of ranks.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/world.h"
#include "train/step/engine.h"

namespace flatshard {

struct GatheredLosses {
  double sum = 0;                          // sum in lane order, whichever rank computed a lane
  std::vector<double> sequences;           // the values of all sequences of the step, in order
  std::vector<std::vector<double>> notes;  // notes of each rank
};

// Exchanges the losses of a step. Call on all ranks, with the losses of this rank's lanes, an equal number of
// values for each of their sequences, or none, and the same number of notes on all ranks.
GatheredLosses gather_losses(World& world, const RunSetup& setup, std::span<const double> losses,
                             std::span<const double> sequences, std::span<const double> notes);

// The mean losses of a step over the targets of each file, in the order of the files, from the sequences of
// gather_losses(), whose losses are divided by all targets. Files without targets are left out. With a loss
// of whole answers, `targets` are the items that its mean is over.
struct FileLoss {
  size_t file;
  double loss;
  int64_t targets;
};
std::vector<FileLoss> losses_by_file(const Data& data, int64_t data_step, std::span<const double> sequences,
                                     std::span<const int64_t> targets);

// Converts the sums of a loss of whole answers to values of gather_losses(), and back.
std::vector<double> values_of(std::span<const AnswerSums> answers);
std::vector<AnswerSums> answers_in(std::span<const double> values);

// The mean gain of answers to other prompts, at least 0.
double baseline_of(const AnswerSums& sums);

struct EvaluationLoss {
  double mean;
  AnswerSums answers{};  // set for a loss of whole answers
};

// The mean over all targets of the evaluation data, or over its answers, the same value on all ranks.
// Sequences are summed in order, so the result does not depend on the number of ranks or the batch size.
// After each batch every rank calls `interrupted`; if it returns true on any rank and batches remain, all
// ranks stop and the result is empty. An Error names `path` if the data has no targets.
std::optional<EvaluationLoss> evaluation_loss(Engine& engine, const AnswerLoss& loss, const Data& data,
                                              const std::string& path, World& world,
                                              const std::function<bool()>& interrupted);

}  // namespace flatshard
