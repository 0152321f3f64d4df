#pragma once
// Work that runs beside the warps: copies of whole pieces of memory, products of a warpgroup. An instruction
// issues it, and it runs whole at a time of the machine's choosing (AsyncTiming) before somebody's wait for
// it ends. To the race detector each work is an actor of its own, a warp of one lane with a serial of its
// own: it knows what its issuer knew when it issued it, and others know what it did once they have waited for
// it.

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "tests/ptx_vm/warp.h"

namespace flatshard::ptx_vm {

struct AsyncWork {
  Warp actor;           // passes for the warp in `resolve` and in reports, which then name the issuer
  uint32_t issuer = 0;  // its serial
  int lane = 0;
  bool is_done = false;
  std::shared_ptr<AsyncWork> after{};  // runs before this one
  std::function<void(Warp& actor)> run;
};
using AsyncHandle = std::shared_ptr<AsyncWork>;

// Works that run in the order they are issued in: to the race detector one actor, whose time advances.
struct AsyncLine {
  uint32_t serial = 0, issued = 0;
  AsyncHandle last{};
};

class AsyncQueue {
 public:
  void seed(uint64_t seed) { random_.seed(seed); }
  // `run` may touch what the launch owns and its own captures. The op is the warp's current one.
  AsyncHandle issue(Warp& issuer, int lane, std::function<void(Warp& actor)> run,
                    AsyncHandle after = nullptr);
  AsyncHandle issue(Warp& issuer, int lane, std::function<void(Warp& actor)> run, AsyncLine& line);
  // Runs it now, unless it is done.
  void finish(AsyncHandle work);
  // Runs any that is pending; false where none is.
  bool run_one();
  // All that was issued by warps of the block.
  void finish_of(const Block& block);
  bool is_used() const { return !all_.empty(); }
  // Between the turns of warps.
  void maybe_run();
  // For what hardware may do or not: one time in so many where the timing is random, else never.
  bool happens(uint32_t one_in);
  // A work with this serial, for reports; null when no work has it.
  const AsyncWork* find(uint32_t serial) const;

 private:
  AsyncHandle enqueue(AsyncHandle work);

  std::mt19937_64 random_;
  std::vector<AsyncHandle> all_, pending_;  // of each line, `all_` has the first
};

// From now on the warp knows what the work did.
void learn(Warp& warp, const AsyncWork& work);

}  // namespace flatshard::ptx_vm
