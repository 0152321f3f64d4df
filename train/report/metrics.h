#pragma once
// What a run measures of each step, and metrics.jsonl, the file that keeps it: one JSON object a line,
// written out line by line, so that the file can be followed while the run goes on. The keys are the names
// below; skipped stands there only where true, the optional ones only where they have a value. Doubles
// have as many digits as it takes to read the same bits back. JSON has no word for what is not finite: "inf",
// "-inf" and "nan" stand there as strings. Where a run has gone on from another folder's checkpoint, steps
// may be missing (log_history.h).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace flatshard {

struct StepMetrics {
  int64_t step = 0;       // completed optimizer steps
  int64_t data_step = 0;  // global batches seen: those of skipped steps as well
  double loss = 0, grad_norm = 0, lr = 0;
  int64_t tokens = 0;  // target tokens trained on so far
  double tokens_per_second = 0, step_seconds = 0;
  double mfu = 0, mfu_causal = 0;  // shares of the stated peak: full attention counted, or its causal half
  int64_t memory_bytes = 0;
  bool skipped = false;                // no update was made (non-finite gradient, or no targets)
  std::optional<double> loss_scale{};  // fp16 only
  std::optional<double> eval_loss{};
  std::optional<double> exposed_comm_seconds{};  // several ranks: for which compute stood waiting
  std::optional<double> save_seconds{};          // for which training stood still for checkpoints
  // The checkpoint that was last finished since the line before: its bytes, and the seconds of writing it,
  // most of them behind the steps.
  std::optional<int64_t> saved_step{}, saved_bytes{};
  std::optional<double> saved_seconds{};
};

class MetricsFile {
 public:
  // Begins the file anew, with these lines; an Error where it cannot be written.
  explicit MetricsFile(const std::string& path, const std::vector<StepMetrics>& lines = {});
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  // No run ends for want of this file: what does not fit onto a full disk is kept and written before the next
  // line. The first time a warning says so.
  void write(const StepMetrics& m);

 private:
  std::string path_;
  int file_;
  std::string unwritten_;
  bool warned_ = false;
};

// How JSON of ours says what is not finite; and back, nothing where the text is none of them.
const char* name_of_non_finite(double value);
std::optional<double> non_finite_named(const std::string& name);

// A line of the file, without its end; and back, where `where` begins the Error about what is not such a
// line.
std::string to_json(const StepMetrics& m);
StepMetrics parse_metrics(const std::string& line, const std::string& where);

// All lines of the file in order; an Error that names file and line where one is not as write() made it.
std::vector<StepMetrics> read_metrics(const std::string& path);
// Those up to a data_step; what comes after them may be of any kind, and a last line that has no end does not
// count.
std::vector<StepMetrics> read_metrics_until(const std::string& path, int64_t data_step);

}  // namespace flatshard
