#pragma once
// The metrics of a step, and metrics.jsonl, the file that records them: one JSON object per line, flushed
// line by line so that the file can be followed during the run. The keys are the member names below; skipped
// and mfu_is_bound appear only if true, optional members only if set. Values of files of data.train or
// data.eval have keys with their names, such as "loss/web", and metrics of answers have keys such as
// "answers/margin". Doubles round-trip exactly. Non-finite values, which JSON lacks, are the strings "inf",
// "-inf" and "nan". Steps may be missing in a run that was resumed from another folder's checkpoint
// (log_history.h).

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernels/answer_loss.h"
#include "runtime/appended_file.h"

namespace flatshard {

// A named value: of one of several files of data, or a metric of answers.
template <class T>
struct NamedValue {
  std::string name;
  T value;
};

struct StepMetrics {
  int64_t step = 0;       // completed optimizer steps
  int64_t data_step = 0;  // global batches read, including batches of skipped steps
  double loss = 0, grad_norm = 0, lr = 0;
  int64_t tokens = 0;  // target tokens trained on so far
  double tokens_per_second = 0, step_seconds = 0;
  std::optional<double> all_tokens_per_second{};  // counts untrained tokens and padding, too
  double mfu = 0, mfu_causal = 0;         // fractions of the matrix peak, counting full or causal attention
  bool mfu_is_bound = false;              // they are upper bounds: the peak was measured on a busy machine
  std::optional<double> mfu_published{};  // mfu against the GPU's published peak, where that is known
  int64_t memory_bytes = 0;
  bool skipped = false;                // no update was made (non-finite gradient, or no targets)
  std::optional<double> loss_scale{};  // fp16 only
  std::optional<double> eval_loss{};   // with several files, the mean of their losses
  // With several files of data.train: loss/NAME, the mean over the file's targets in this step, and
  // targets/NAME, their number; a file without targets has neither. With several files of data.eval:
  // eval_loss/NAME.
  std::vector<NamedValue<double>> file_losses{}, file_eval_losses{};
  std::vector<NamedValue<int64_t>> file_targets{};
  // With a loss of whole answers, answers/NAME. Pairs have the means of chosen_logprob, rejected_logprob,
  // chosen_reward and rejected_reward, margin (the difference of the rewards), and accuracy, the share of
  // pairs with a positive margin. Labels have the same without accuracy, and kl, the baseline. Rollouts have
  // clip_share, the share of tokens whose ratio is clipped, and kl if there is a reference. An evaluation has
  // the same metrics.
  std::vector<NamedValue<double>> answers{}, eval_answers{};
  // With a mixture of experts, experts/NAME: max_load, the largest load of an expert as a multiple of the
  // mean one, in the block where it is largest; entropy, that of the loads as a share of the largest
  // possible, the mean over blocks; unused, the number of experts that no token chose; and without their
  // weights the losses of the routers, if they have any: aux_loss, the one that balances, and z_loss.
  std::vector<NamedValue<double>> experts{};
  // The time at which the step ended, in seconds since 1970, to the millisecond; and the time that the run
  // has taken until then, without pauses between a stop and a resume. Lines of older runs lack both.
  std::optional<double> time{}, elapsed_seconds{};
  // The step_seconds of the plan that was saved for the run, in the first line after a start.
  std::optional<double> predicted_seconds{};
  std::optional<double> exposed_comm_seconds{};  // several ranks on CPUs: compute waited for communication
  std::optional<double> save_seconds{};          // pause of training for checkpoints
  // The last checkpoint completed since the previous line: its size, and the time to write it, which mostly
  // overlaps with training.
  std::optional<int64_t> saved_step{}, saved_bytes{};
  std::optional<double> saved_seconds{};
};

class MetricsFile {
 public:
  // Replaces the file by these lines; an Error if it cannot be written.
  explicit MetricsFile(const std::string& path, const std::vector<StepMetrics>& lines = {});
  void write(const StepMetrics& m);  // never fails

 private:
  AppendedFile file_;
};

// The metrics of a loss of whole answers, from sums over a step or an evaluation.
std::vector<NamedValue<double>> answer_metrics(const AnswerLoss& loss, const AnswerSums& sums);

// The metrics of a mixture of E experts from (blocks, E) counts of choices; blocks without any have no
// experts.
std::vector<NamedValue<double>> expert_metrics(std::span<const double> counts, int64_t experts);

// The key and value of every member that is set, as in the file; true is 1.
std::vector<std::pair<std::string, double>> numbers_of(const StepMetrics& m);

// The JSON string of a non-finite value, and its inverse, empty for any other text.
const char* name_of_non_finite(double value);
std::optional<double> non_finite_named(const std::string& name);

// A line of the file, without the line break, and its inverse; Errors of parse_metrics start with `where`.
std::string to_json(const StepMetrics& m);
StepMetrics parse_metrics(const std::string& line, const std::string& where);

// All lines of the file in order. An Error names the file and line that write() cannot have written.
std::vector<StepMetrics> read_metrics(const std::string& path);
// The lines of a run that may be alive or have crashed: an incomplete last line is ignored. Of lines with
// the same data_step the last counts, and it also replaces the lines in between: a resume repeats them.
std::vector<StepMetrics> read_latest_metrics(const std::string& path);
// The lines up to a data_step. Anything may follow them, and an incomplete last line is ignored.
std::vector<StepMetrics> read_metrics_until(const std::string& path, int64_t data_step);

}  // namespace flatshard
