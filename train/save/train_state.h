#pragma once
// The state of a run besides its tensors, stored in a checkpoint as train_state.json. A step's inputs are a
// function of its position, so a few numbers describe the progress of a run.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/optimizer_kinds.h"
#include "text/data/data.h"
#include "train/config/config.h"
#include "train/report/metrics.h"

namespace flatshard {

// A change of a setting that affects what later steps compute. Values are TOML.
struct RunChange {
  int64_t step = 0;  // the last step before the change
  std::string key, from, to;
};

struct TrainState {
  static constexpr const char* kFileName = "train_state.json";
  struct Evaluated {
    int64_t step = 0;
    double loss = 0;
  };

  // One of several files of data.train: its content, and its next sequence.
  struct Source {
    std::string fingerprint;
    SourcePosition position{};
  };

  int64_t step = 0;       // completed optimizer steps
  int64_t data_step = 0;  // global batches seen; also the index of the next one
  int64_t tokens = 0;     // target tokens trained on
  int64_t skipped_in_a_row = 0;
  double loss_scale = 1;
  int64_t good_steps = 0;             // finite steps since the loss scale last changed
  std::optional<double> eval_loss{};  // evaluation loss of the weights in this checkpoint
  std::optional<Evaluated> best{};    // lowest loss of all checkpoints so far, this one included
  // The lowest loss of all evaluations so far, saved or not (early_stop.h); older checkpoints have none.
  std::optional<Evaluated> lowest_eval{};
  std::optional<int64_t> evals_not_lower{};  // evaluations since lowest_eval
  // The next sequence, as an index in the order of an epoch; older checkpoints have none.
  std::optional<int64_t> data_epoch{}, data_sequence{};
  std::vector<Source> sources{};                // the files of data.train, if it names several
  int64_t lane_sequences = 0;                   // sequences in a lane, on which results depend
  int64_t data_tokens = 0, data_documents = 0;  // size of data.train
  // Fingerprints of data.train and data.eval (runtime/fingerprint.h), of all files of each; older checkpoints
  // have none.
  std::optional<std::string> data_fingerprint{}, eval_fingerprint{};
  // Fingerprint of the frozen weights of model.init_from, which a checkpoint of adapters does not contain.
  std::optional<std::string> base_fingerprint{};
  // How CPUs multiplied bf16 (kernels/bf16_products.h), on which results depend; none on GPUs and in f32.
  std::optional<std::string> bf16_products{};
  int64_t ranks = 0;                            // number of ranks that wrote it; any number can resume
  std::map<std::string, std::string> config{};  // every key as TOML
  std::vector<RunChange> changes{};             // changes at earlier resumes, in order
  std::vector<StepMetrics> log_history{};  // lines up to this step that add_line() of log_history.h keeps
};

std::string to_json(const TrainState& state);
// An Error names the file and the member that is missing, unknown or of a wrong type.
TrainState read_train_state(const std::string& path);
// Parses the text; errors begin with the path.
TrainState parse_train_state(std::string_view text, const std::string& path);

// The choice that a value of optimizer.kind in TOML names; nothing if there is none of that name.
std::optional<OptimizerChoice> optimizer_in(std::string_view toml);
// The optimizer of the run.
const OptimizerKind& optimizer_of(const TrainState& state);

// Members and config keys whose values differ, one line each: "step: 20, 40". Ignores the history, whose
// timings always differ.
std::vector<std::string> differences(const TrainState& a, const TrainState& b);

}  // namespace flatshard
