#pragma once
// Asynchronous work: bulk copies and warpgroup products. An instruction issues the work. It runs atomically
// at a time that AsyncTiming selects, at the latest when a wait for it completes. To the race detector each
// work is a separate actor, a one-lane warp with its own serial: everything that its issuer knew at issue
// happened before it, and it happened before everything that follows a wait for it.

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "ptx_vm/warp.h"

namespace flatshard::ptx_vm {

struct AsyncWork {
  Warp actor;           // stands in for the warp in `resolve` and in reports, which name the issuer
  uint32_t issuer = 0;  // the issuer's serial
  int lane = 0;
  bool is_done = false;
  std::shared_ptr<AsyncWork> after{};  // work that must run before this one
  std::function<void(Warp& actor)> run;
};
using AsyncHandle = std::shared_ptr<AsyncWork>;

// Works that run in issue order: to the race detector, one actor whose time advances.
struct AsyncLine {
  uint32_t serial = 0, issued = 0;
  AsyncHandle last{};
};

class AsyncQueue {
 public:
  void seed(uint64_t seed) { random_.seed(seed); }
  // `run` may access the launch's state and its own captures. The op is the warp's current one.
  AsyncHandle issue(Warp& issuer, int lane, std::function<void(Warp& actor)> run,
                    AsyncHandle after = nullptr);
  AsyncHandle issue(Warp& issuer, int lane, std::function<void(Warp& actor)> run, AsyncLine& line);
  // Runs the work now unless it is done.
  void finish(AsyncHandle work);
  // Runs one pending work. Returns false if there is none.
  bool run_one();
  // Runs all work issued by warps of the block.
  void finish_of(const Block& block);
  bool is_used() const { return !all_.empty(); }
  // Called between warp turns: may run pending work.
  void maybe_run();
  // For optional hardware behaviour: true once in `one_in` calls on average if the timing is random, else
  // never.
  bool happens(uint32_t one_in);
  // Returns the work with this serial, for reports; null if there is none.
  const AsyncWork* find(uint32_t serial) const;

 private:
  AsyncHandle enqueue(AsyncHandle work);

  std::mt19937_64 random_;
  std::vector<AsyncHandle> all_, pending_;  // `all_` has the first work of each line
};

// Records that the work happened before everything that the warp does from now on.
void learn(Warp& warp, const AsyncWork& work);

}  // namespace flatshard::ptx_vm
