#pragma once
// A launch: blocks of warps, their shared memory and barriers, and the warp scheduler.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "ptx_vm/async.h"
#include "ptx_vm/bulk.h"
#include "ptx_vm/cluster.h"
#include "ptx_vm/counts.h"
#include "ptx_vm/mbarrier.h"
#include "ptx_vm/program.h"
#include "ptx_vm/race.h"
#include "ptx_vm/register_pool.h"
#include "ptx_vm/timeline.h"
#include "ptx_vm/warp.h"
#include "ptx_vm/warpgroup.h"

namespace flatshard::ptx_vm {

struct Dim {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

struct Allocation;

struct Launch {
  const Kernel* kernel;
  Dim grid, block;
  Dim cluster{};  // blocks per cluster
  bool has_clusters = false;
  uint32_t dynamic_shared_bytes = 0;
  std::vector<unsigned char> parameters{};
  uint32_t first_serial = 0;  // serial of its first warp; serials of its asynchronous works follow
  Past past{};                // the stream operations that happened before it
  bool finds_races = true;
  bool is_cooperative = false;                          // all blocks are resident
  std::vector<Allocation*> last_touched{};              // a cache for the next access by each op
  std::unordered_map<uint64_t, Knowledge> published{};  // keyed by address
  uint64_t progress = 0;       // stores, barriers and exits so far; a hang is detected if it stays constant
  std::vector<Warp*> woken{};  // warps woken since the last pass of the scheduler
  Counts* counts = nullptr;    // null: do not count
  KernelCounts* kernel_counts = nullptr;
  AsyncQueue async{};
  Epochs epochs{};

  uint64_t warps() const { return grid.count() * ((block.count() + kLanes - 1) / kLanes); }
  void wake(Warp& warp);  // makes a waiting warp runnable
};

enum class Reduction { none, count, all, any };  // operation of bar.red, in Op::immediate

struct Barrier {
  uint32_t expected = 0;  // number of threads
  uint32_t arrived = 0;   // number of threads; 0: the barrier is unused
  bool is_for_all = false;
  std::vector<Warp*> waiting, arrivers;
  Knowledge known_elsewhere{}, observed{};
  uint32_t ayes = 0;            // bar.red: threads whose predicate is true
  std::vector<uint32_t> known;  // times that happened before the arrivals, as in Warp
  void begin();                 // resets the barrier
};

struct Block {
  Launch* launch = nullptr;
  Dim id;
  Cluster* cluster = nullptr;
  uint32_t rank = 0;  // rank in the cluster
  std::vector<Warp> warps;
  std::vector<unsigned char> registers;
  std::vector<unsigned char> shared, shared_state;  // state: one byte per byte, ByteState
  RaceShadow shared_races{true};
  std::array<Barrier, 16> barriers;
  std::vector<Products> products;  // products of each warp; empty in kernels without products
  std::vector<Warpgroup> warpgroups;
  RegisterPool register_pool;
  int live_warps = 0;
  uint64_t copies_in_flight = 0;           // copies of all warps
  std::map<uint64_t, Mbarrier> mbarriers;  // keyed by offset in the block's shared memory
  std::vector<AsyncHandle> loads;          // loads to the block's shared memory
  std::map<int, BulkGroups> stores;        // keyed by thread
  std::map<uint32_t, Visit> visits;        // visits by warps of other blocks, by serial

  Mark started = 0;  // smaller marks on its shared memory belong to an earlier block
  Mark settled = 0;  // accesses with smaller marks by the block's warps happened before now, for all of them

  // The first mark on the block's shared memory that may still be part of a race. A barrier settles all marks
  // only if no other block or asynchronous work accesses the memory.
  Mark first_unsettled() const { return launch->async.is_used() || launch->has_clusters ? started : settled; }
  const Kernel& kernel() const { return *launch->kernel; }
  uint32_t first_serial() const { return warps[0].serial; }
  // Makes a warp arrive at a barrier of `expected` threads (0: all threads of the block), and wait or
  // continue.
  void arrive(Warp& warp, uint32_t barrier, uint32_t expected, bool waits);
  // Called when a warp has ended. A block-wide barrier at which other warps still wait is then a finding.
  void warp_ended(Warp& warp);

 private:
  void complete(Barrier& barrier);
};

// The value of a special register; see special.cpp.
uint32_t value_of(Special special, const Warp& warp, uint32_t lane);
bool varies_by_block(Special special);  // false: the same for successive blocks in one resident slot

// Runs the launch; throws Finding at the first error.
void execute(Launch& launch);

}  // namespace flatshard::ptx_vm
