#pragma once
// The part of a run's metrics that a report shows. Its size does not grow with the run, so that a page can be
// written at any time without reading metrics.jsonl again.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "train/report/metrics.h"

namespace flatshard {

// A curve in bounded memory, however many points it is given. It preserves the envelope: every spike and the
// extremes, with their exact steps and values.
struct CurvePoint {
  int64_t step;
  double value;
};
using Curve = std::vector<CurvePoint>;

class ThinnedCurve {
 public:
  // Two points, lowest and highest, per pixel of the widest chart.
  static constexpr size_t kMostPoints = 2000;

  explicit ThinnedCurve(size_t most = kMostPoints);  // `most`: at least 8

  // Values must be finite, and steps must not decrease.
  void add(int64_t step, double value);
  bool empty() const { return groups_.empty(); }
  // All points if there are at most `most`; otherwise at most that many: the first, the last, and the lowest
  // and highest of each of equally large groups in between, in order.
  Curve points() const;
  bool omits_points() const { return length_ > 1; }
  // A point for each group: the mean of its steps, rounded, and of its values. All points if none are
  // omitted.
  Curve means() const;

 private:
  struct Group {
    CurvePoint low, high;
    bool low_is_first;
    size_t count;
    double sum;     // sum of the values
    int64_t steps;  // sum of the steps
  };
  static void absorb(Group& group, const Group& next);
  void merge_groups();

  size_t most_, length_ = 1;  // points per group
  std::vector<Group> groups_;
  CurvePoint first_{}, last_{};
};

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
  std::vector<NamedValue<ThinnedCurve>> answers, eval_answers, experts;

  static constexpr size_t kAxisPoints = 400, kFilePoints = 400;
};

}  // namespace flatshard
