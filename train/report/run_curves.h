#pragma once
// What a report shows of a run's metrics. Its size does not grow with the run, so that a page can be written
// at any time without reading metrics.jsonl again.

#include <optional>
#include <vector>

#include "train/report/metrics.h"
#include "train/report/thinned_curve.h"

namespace flatshard {

// The median of the finite values; of a long run that of every second, fourth, eighth ... value.
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
  StepMetrics last{};                 // if there are lines
  std::optional<double> last_loss{};  // of the last step with an update
  std::optional<StepMetrics> best_eval{};
  double elapsed_seconds = 0;  // of lines without the time: their steps only
  bool has_elapsed_times = true;
  SampledMedian tokens_per_second, step_seconds, mfu, mfu_causal, median_comm_share;
  std::optional<double> predicted_seconds{};  // of a step, since the last start
  bool mfu_is_bound = false;                  // of at least one step

  // Skipped steps are only in `marks`, `loss_scale` and the last two.
  ThinnedCurve loss, eval_loss, lr, grad_norm, throughput, comm_share, memory, loss_scale;
  ThinnedCurve marks;                                      // steps that were skipped or have no finite loss
  ThinnedCurve tokens{kAxisPoints}, seconds{kAxisPoints};  // the other two axes

  std::vector<NamedValue<ThinnedCurve>> file_losses, file_eval_losses;  // of several files of data
  std::vector<NamedValue<ThinnedCurve>> answers, eval_answers;

  static constexpr size_t kAxisPoints = 400, kFilePoints = 400;
};

}  // namespace flatshard
