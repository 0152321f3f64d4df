#pragma once
// A run as the person before it sees it, one line for each logged step, with columns that keep their places:
//     450/1000  loss  3.2412  grad 1.23  lr 3.00e-4  51.2k tok/s  ETA    1:28   160 ms  14.2 MiB
// and behind that "  mfu 41.2% causal 39.8%", shares of the stated peak with attention counted in full and by
// half; with several ranks also "  comm  6%", the share of the step in which compute waited for
// communication. On a terminal the line is rewritten in place and cut at the terminal's edge; evaluations and
// skipped steps stand above it and stay. Elsewhere all lines are plain text. The time left is that of the
// steps alone, at the median of the latest of them. Output that is closed or cannot be written is a warning,
// once.

#include <cstdint>
#include <deque>
#include <iosfwd>
#include <optional>
#include <string>

#include "train/report/metrics.h"
#include "train/report/terminal_line.h"

namespace flatshard {

class Progress {
 public:
  Progress(int64_t total_steps, bool terminal, std::ostream& out);

  void step(const StepMetrics& m);
  // A line that stays.
  void print(const std::string& line);
  // Ends the line that is being rewritten, if there is one; more steps may follow.
  void finish();

 private:
  std::string line_of(const StepMetrics& m) const;
  double seconds_left(int64_t completed) const;
  void check_output();

  int64_t total_steps_;
  std::optional<TerminalLine> terminal_;
  std::ostream& out_;
  std::deque<double> recent_;  // seconds of the latest steps
  bool warned_ = false;
};

}  // namespace flatshard
