#include "runtime/stopwatch.h"

#include <algorithm>

#include "build_config.h"
#include "runtime/cuda.h"

namespace flatshard {

Stopwatch::~Stopwatch() {
  if constexpr (kCudaBuilt)
    for (void* event : {start_event_, stop_event_})
      if (event) cuda::destroy_event(event);
}

void Stopwatch::start() {
  if constexpr (kCudaBuilt)
    if (stream_.native()) return cuda::record_time(start_event_, stream_.device(), stream_.native());
  stream_.sync();
  began_ = Clock::now();
}

void Stopwatch::stop() {
  if constexpr (kCudaBuilt)
    if (stream_.native()) return cuda::record_time(stop_event_, stream_.device(), stream_.native());
  stream_.sync();
  ended_ = Clock::now();
}

double Stopwatch::seconds() {
  if constexpr (kCudaBuilt)
    if (stream_.native()) return std::max(cuda::seconds_between(start_event_, stop_event_), kTick);
  return std::max(std::chrono::duration<double>(ended_ - began_).count(), kTick);
}

}  // namespace flatshard
