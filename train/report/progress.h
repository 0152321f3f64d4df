#pragma once
// The progress of a run on standard output: one line per logged step, in fixed columns:
//     450/1000  loss  3.2412  grad 1.23  lr 3.00e-4  51.2k tok/s  ETA    1:28   160 ms  14.2 MiB
// followed by "  mfu 41.2% causal 39.8%", fractions of the matrix peak counting full and causal attention
// ("mfu<41.2%": upper bounds, as the machine was busy when the peak was measured),
// and with several ranks by "  comm  6%", the fraction of the step in which compute waited for communication.
// On a terminal the line is rewritten in place and cut at the right edge; evaluations and skipped steps
// remain above it. Elsewhere all lines are plain text. The ETA covers steps only, at the median of recent
// step times. If the output is closed or cannot be written, that is logged once as a warning.

#include <cstdint>
#include <deque>
#include <iosfwd>
#include <optional>
#include <string>

#include "runtime/appended_file.h"
#include "runtime/terminal_line.h"
#include "train/report/metrics.h"

namespace flatshard {

class Progress {
 public:
  Progress(int64_t total_steps, bool terminal, std::ostream& out);
  // From now on all lines go to this file too, which begins with `text`.
  void open_log(const std::string& path, const std::string& text, bool continues) {
    log_.emplace(path, text, continues ? AppendedFile::Begin::at_end : AppendedFile::Begin::empty);
  }
  void step(const StepMetrics& m);
  // Prints permanent lines, without the last line break.
  void print(const std::string& line);
  // Ends the line being rewritten, if any; more steps may follow.
  void finish();

 private:
  std::string line_of(const StepMetrics& m) const;
  double seconds_left(int64_t completed) const;
  void log(const std::string& line);  // writes to the log file only
  void check_output();

  int64_t total_steps_;
  std::optional<TerminalLine> terminal_;
  std::ostream& out_;
  std::optional<AppendedFile> log_;
  std::deque<double> recent_;  // seconds of the latest steps
  bool warned_ = false;
};

}  // namespace flatshard
