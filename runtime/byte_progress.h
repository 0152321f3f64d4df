#pragma once
// A progress bar for long operations on bytes:
//   [==========>         ]  52%  1.04 GiB of 2.00 GiB  812 MiB/s  ETA 0:01
// Printed only on a terminal.

#include <chrono>
#include <cstdint>
#include <optional>

#include "runtime/terminal_line.h"

namespace flatshard {

class ByteProgress {
 public:
  // Prints nothing if `terminal` is null.
  ByteProgress(int64_t total, std::ostream* terminal);

  void add(int64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  int64_t total_, done_ = 0;
  std::optional<TerminalLine> line_;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
};

}  // namespace flatshard
