#pragma once
// How long a stream takes for the work that it is given between start() and stop(). On a GPU its own clock
// counts, from event to event, so that the host may run ahead and its time stays out of it; on the CPU the
// host's clock, from when all work before is done to when this work is.

#include <chrono>

#include "runtime/stream.h"

namespace flatshard {

class Stopwatch {
 public:
  explicit Stopwatch(Stream& stream) : stream_(stream) {}
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

  void start();
  void stop();
  // Of the last start and stop; waits until that work is done. At least kTick: a GPU's clock has steps.
  double seconds();
  static constexpr double kTick = 1e-9;

 private:
  using Clock = std::chrono::steady_clock;
  Stream& stream_;
  Clock::time_point began_{}, ended_{};
  void *start_event_ = nullptr, *stop_event_ = nullptr;
};

}  // namespace flatshard
