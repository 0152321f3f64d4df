#pragma once
// Measures the time that a stream takes for the work enqueued between start() and stop(). On a GPU it uses
// timing events, so the host may run ahead and host time is not measured. On the CPU, start() and stop()
// synchronize the stream and read the host's clock.

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
  // The time between the last start() and stop(), at least kTick because GPU clocks are coarse. Blocks until
  // the work is done.
  double seconds();
  static constexpr double kTick = 1e-9;

 private:
  using Clock = std::chrono::steady_clock;
  Stream& stream_;
  Clock::time_point began_{}, ended_{};
  void *start_event_ = nullptr, *stop_event_ = nullptr;
};

}  // namespace flatshard
