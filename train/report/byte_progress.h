#pragma once
// How far a long walk over bytes has come, for who watches a terminal:
//   [==========>         ]  52%  1.04 GiB of 2.00 GiB  812 MiB/s  ETA 0:01
// Where nobody watches it prints nothing.

#include <chrono>
#include <cstdint>
#include <optional>

#include "train/report/terminal_line.h"

namespace flatshard {

class ByteProgress {
 public:
  // Null: nobody watches.
  ByteProgress(int64_t total, std::ostream* terminal);

  void add(int64_t bytes);

 private:
  using Clock = std::chrono::steady_clock;

  int64_t total_, done_ = 0;
  std::optional<TerminalLine> line_;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
};

}  // namespace flatshard
