#include "train/report/run_curves.h"

#include <algorithm>
#include <cmath>

#include "runtime/median.h"

namespace flatshard {
namespace {

constexpr size_t kMostSamples = 8192;

void add_finite(ThinnedCurve& curve, int64_t step, const std::optional<double>& value) {
  if (value && std::isfinite(*value)) curve.add(step, *value);
}

void add_named(std::vector<NamedValue<ThinnedCurve>>& curves, int64_t step,
               const std::vector<NamedValue<double>>& values) {
  for (const NamedValue<double>& of : values) {
    auto curve = std::find_if(curves.begin(), curves.end(), [&](const auto& c) { return c.name == of.name; });
    if (curve == curves.end()) curve = curves.insert(curve, {of.name, ThinnedCurve(RunCurves::kFilePoints)});
    add_finite(curve->value, step, of.value);
  }
}

}  // namespace

void SampledMedian::add(double value) {
  if (!std::isfinite(value) || seen_++ % stride_ != 0) return;
  values_.push_back(value);
  if (values_.size() < kMostSamples) return;
  size_t kept = 0;
  for (size_t i = 0; i < values_.size(); i += 2) values_[kept++] = values_[i];
  values_.resize(kept);
  stride_ *= 2;
}

std::optional<double> SampledMedian::value() const {
  if (values_.empty()) return {};
  return median(values_);
}

RunCurves::RunCurves(const std::vector<StepMetrics>& all) {
  for (const StepMetrics& m : all) add(m);
}

void RunCurves::add(const StepMetrics& m) {
  ++lines;
  last = m;
  peak_memory = std::max(peak_memory, m.memory_bytes);
  elapsed_seconds = m.elapsed_seconds.value_or(elapsed_seconds + m.step_seconds);
  has_elapsed_times = has_elapsed_times && m.elapsed_seconds;
  tokens.add(m.step, static_cast<double>(m.tokens));
  seconds.add(m.step, elapsed_seconds);
  if (m.eval_loss) {
    ++evaluations;
    const bool better =
        !best_eval || *m.eval_loss < *best_eval->eval_loss || std::isnan(*best_eval->eval_loss);
    if (better) best_eval = m;
  }
  if (m.predicted_seconds) predicted_seconds = m.predicted_seconds;
  if (m.skipped || !std::isfinite(m.loss)) marks.add(m.step, 0);
  add_finite(eval_loss, m.step, m.eval_loss);
  add_named(file_eval_losses, m.step, m.file_eval_losses);
  add_named(eval_answers, m.step, m.eval_answers);
  add_finite(loss_scale, m.step, m.loss_scale);
  if (m.skipped) return;
  last_loss = m.loss;
  add_finite(loss, m.step, m.loss);
  add_named(file_losses, m.step, m.file_losses);
  add_named(answers, m.step, m.answers);
  add_named(experts, m.step, m.experts);
  add_finite(lr, m.step, m.lr);
  add_finite(grad_norm, m.step, m.grad_norm);
  add_finite(throughput, m.step, m.tokens_per_second);
  memory.add(m.step, static_cast<double>(m.memory_bytes));
  if (m.exposed_comm_seconds && m.step_seconds > 0) {
    const double share = *m.exposed_comm_seconds / m.step_seconds;
    add_finite(comm_share, m.step, 100 * share);
    median_comm_share.add(share);
  }
  tokens_per_second.add(m.tokens_per_second);
  step_seconds.add(m.step_seconds);
  mfu_is_bound = mfu_is_bound || m.mfu_is_bound;
  mfu.add(m.mfu);
  mfu_causal.add(m.mfu_causal);
}

}  // namespace flatshard
