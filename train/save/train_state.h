#pragma once
// What a run is besides its tensors, and train_state.json, where a checkpoint keeps it. Everything that a
// step sees is a function of position, so a few numbers say where a run stands.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "train/config/config.h"
#include "train/report/metrics.h"

namespace flatshard {

struct TrainState {
  static constexpr const char* kFileName = "train_state.json";
  struct Evaluated {
    int64_t step = 0;
    double loss = 0;
  };

  int64_t step = 0;       // completed optimizer steps
  int64_t data_step = 0;  // global batches seen: the next one's number
  int64_t tokens = 0;     // target tokens trained on
  int64_t skipped_in_a_row = 0;
  double loss_scale = 1;
  int64_t good_steps = 0;                       // since the loss scale last changed
  std::optional<double> eval_loss{};            // of these weights
  std::optional<Evaluated> best{};              // the lowest of all checkpoints so far, this one included
  int64_t lane_sequences = 0;                   // what the bits depend on
  int64_t data_tokens = 0, data_documents = 0;  // of data.train
  // Of data.train and data.eval (runtime/fingerprint.h); older checkpoints have none.
  std::optional<std::string> data_fingerprint{}, eval_fingerprint{};
  int64_t ranks = 0;                            // that wrote it; any number can go on
  std::map<std::string, std::string> config{};  // every key as TOML
  std::vector<StepMetrics> log_history{};       // up to this step, as add_line() of log_history.h keeps them
};

std::string to_json(const TrainState& state);
// An Error that names the file and the member where one is missing, of another type or not known.
TrainState read_train_state(const std::string& path);
// The same of its text; errors begin with the path.
TrainState parse_train_state(std::string_view text, const std::string& path);

// Members and keys of the config whose values are not the same: "step: 20, 40", a line for each. Not the
// history: it holds what a machine did in what time, and is never the same twice.
std::vector<std::string> differences(const TrainState& a, const TrainState& b);

// What a run that goes on from this state does otherwise, a line for each: keys and data that may change. An
// Error where something differs that must not, such as the model: it names the key and both values.
std::vector<std::string> check_continues(const TrainState& saved, const TrainState& now);

}  // namespace flatshard
