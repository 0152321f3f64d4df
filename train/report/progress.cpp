#include "train/report/progress.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <utility>
#include <vector>

#include "runtime/check.h"
#include "runtime/log.h"
#include "runtime/median.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

constexpr size_t kRecentSteps = 31;

std::string right(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

// 3e-4 for C's 3e-04
std::string exponent_form(double value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*e", decimals, value);
  std::string form = text;
  const size_t exponent = form.find('e');
  if (exponent != form.npos && form.size() == exponent + 4 && form[exponent + 2] == '0')
    form.erase(exponent + 2, 1);
  return form;
}

// The value with as many decimals as fit, at most `decimals`; exponent form if the value is too wide or too
// small for that.
std::string fitted(double value, size_t width, int decimals) {
  const double least = std::pow(10.0, 1 - decimals);
  if (value == 0 || std::abs(value) >= least || !std::isfinite(value))
    for (int d = decimals; d >= 0; --d)
      if (const std::string text = fixed(value, d); text.size() <= width) return right(text, width);
  return right(exponent_form(value, 0), width);
}

std::string share(double value) { return right(fixed(100 * value, 1), 4) + '%'; }

// ", the mean of web 3.1416, code 2.7183"
std::string by_file(const StepMetrics& m) {
  std::string text;
  for (const auto& [name, loss] : m.file_eval_losses)
    text += str(text.empty() ? ", the mean of " : ", ", name, ' ', fixed(loss, 4));
  return text;
}

// "  accuracy 66.7%"
std::string describe_answers(const std::vector<NamedValue<double>>& answers, const char* before) {
  for (const auto& [name, value] : answers) {
    if (name == "accuracy") return str(before, "accuracy ", share(value));
    if (name == "clip_share") return str(before, "clipped ", share(value));
  }
  return "";
}

// "  load 1.85x": the largest load of an expert.
std::string describe_experts(const StepMetrics& m) {
  for (const auto& [name, value] : m.experts)
    if (name == "max_load") return str("  load ", fixed(value, 2), 'x');
  return "";
}

std::string skip_note(const StepMetrics& m) {
  return str(
      "skipped a step after step ", m.step, ": ",
      std::isfinite(m.grad_norm) ? "no update was made" : "the gradient norm is " + fixed(m.grad_norm, 0),
      m.loss_scale ? str(", loss scale ", *m.loss_scale) : "");
}

}  // namespace

Progress::Progress(int64_t total_steps, bool terminal, std::ostream& out)
    : total_steps_(total_steps), out_(out) {
  if (terminal) terminal_.emplace(out);
}

void Progress::step(const StepMetrics& m) {
  recent_.push_back(m.step_seconds);
  if (recent_.size() > kRecentSteps) recent_.pop_front();

  std::vector<std::string> notes;
  if (m.skipped) notes.push_back(skip_note(m));
  if (m.eval_loss)
    notes.push_back(str("step ", m.step, ": eval loss ", fixed(*m.eval_loss, 4), by_file(m),
                        describe_answers(m.eval_answers, ", ")));
  const std::string line = line_of(m);
  std::string text = line;
  for (const std::string& note : notes) text += '\n' + note;
  if (terminal_)
    terminal_->show(line, notes);
  else
    out_ << text << std::endl;
  log(text);
  check_output();
}

// Clears the error, since later lines may succeed.
void Progress::check_output() {
  if (!out_ && !std::exchange(warned_, true))
    log_warning("cannot write standard output; the run continues, and metrics.jsonl records its steps");
  out_.clear();
}

void Progress::print(const std::string& line) {
  finish();
  out_ << line << std::endl;
  log(line);
  check_output();
}

void Progress::log(const std::string& line) {
  if (log_) log_->append(line + '\n');
}

void Progress::finish() {
  if (terminal_) terminal_->finish();
}

std::string Progress::line_of(const StepMetrics& m) const {
  const std::string total = str(total_steps_);
  const char bound = m.mfu_is_bound ? '<' : ' ';
  return str(right(str(m.step), total.size()), '/', total, "  loss ", fitted(m.loss, 7, 4),
             describe_answers(m.answers, "  "), describe_experts(m), "  grad ", fitted(m.grad_norm, 4, 2),
             "  lr ", right(exponent_form(m.lr, 2), 7), "  ", right(human_count(m.tokens_per_second), 5),
             " tok/s", m.all_tokens_per_second ? " of " + human_count(*m.all_tokens_per_second) : "",
             "  ETA ", right(human_duration(seconds_left(m.step)), 7), "  ",
             right(human_seconds(m.step_seconds), 7), "  ", right(human_bytes(m.memory_bytes), 8), "  mfu",
             bound, share(m.mfu), " causal", bound, share(m.mfu_causal),
             m.exposed_comm_seconds ? "  comm " + share(*m.exposed_comm_seconds / m.step_seconds) : "");
}

double Progress::seconds_left(int64_t completed) const {
  const double seconds = median(std::vector<double>(recent_.begin(), recent_.end()));
  return seconds * static_cast<double>(std::max<int64_t>(0, total_steps_ - completed));
}

}  // namespace flatshard
