#pragma once
// The part of a run's metrics that a report shows. Its size does not grow with the run, so that a page can be
// written at any time without reading metrics.jsonl again.

#include <optional>
#include <vector>

#include "train/report/metrics.h"
#include "train/report/thinned_curve.h"

namespace flatshard {

// The median of the finite values; in a long run, of every second, fourth, eighth ... value.
class SampledMedian {
 public:
  void add(double value);
  std::optional<double> value() const;

 private:
  std::vector<double> values_;
  int64_t stride_ = 1, seen_ = 0;
};

struct RunCurves {
  RunCurves() = default;
  explicit RunCurves(const std::vector<StepMetrics>& lines);

  // Appends the line of the next data_step.
  void add(const StepMetrics& m);
  // Steps without a line: the history of another folder's checkpoint omits some.
  int64_t missing_lines() const { return last.data_step - lines; }

  int64_t lines = 0, evaluations = 0, peak_memory = 0;
  StepMetrics last{};                 // the last line, if there are any
  std::optional<double> last_loss{};  // loss of the last step with an update
  std::optional<StepMetrics> best_eval{};
  double elapsed_seconds = 0;  // a line without the time counts its step only
  bool has_elapsed_times = true;
  SampledMedian tokens_per_second, step_seconds, mfu, mfu_causal, median_comm_share;
  std::optional<double> predicted_seconds{};  // predicted time of a step since the last start
  bool mfu_is_bound = false;                  // whether the MFU of some step is a bound

  // Skipped steps are only in `marks`, `loss_scale`, `tokens` and `seconds`.
  ThinnedCurve loss, eval_loss, lr, grad_norm, throughput, comm_share, memory, loss_scale;
  ThinnedCurve marks;                                      // steps that were skipped or have no finite loss
  ThinnedCurve tokens{kAxisPoints}, seconds{kAxisPoints};  // the axes besides steps

  std::vector<NamedValue<ThinnedCurve>> file_losses, file_eval_losses;  // curves of several files of data
  std::vector<NamedValue<ThinnedCurve>> answers, eval_answers;

  static constexpr size_t kAxisPoints = 400, kFilePoints = 400;
};

}  // namespace flatshard
