#pragma once
// A launch: blocks of warps, their shared memory and barriers, and the order in which warps take turns.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "tests/ptx_vm/async.h"
#include "tests/ptx_vm/bulk.h"
#include "tests/ptx_vm/cluster.h"
#include "tests/ptx_vm/counts.h"
#include "tests/ptx_vm/mbarrier.h"
#include "tests/ptx_vm/program.h"
#include "tests/ptx_vm/race.h"
#include "tests/ptx_vm/register_pool.h"
#include "tests/ptx_vm/timeline.h"
#include "tests/ptx_vm/warp.h"
#include "tests/ptx_vm/warpgroup.h"

namespace flatshard::ptx_vm {

struct Dim {
  uint32_t x = 1, y = 1, z = 1;
  uint64_t count() const { return uint64_t{x} * y * z; }
};

struct Allocation;

struct Launch {
  const Kernel* kernel;
  Dim grid, block;
  Dim cluster{};  // blocks of a cluster
  bool has_clusters = false;
  uint32_t dynamic_shared_bytes = 0;
  std::vector<unsigned char> parameters{};
  uint32_t first_serial = 0;  // of its warps, then come its asynchronous works
  Past past{};                // which of the operations of streams happened before it
  bool finds_races = true;
  bool is_cooperative = false;                          // all blocks are resident
  std::vector<Allocation*> last_touched{};              // by each op: where it probably goes next
  std::unordered_map<uint64_t, Knowledge> published{};  // by address
  uint64_t progress = 0;       // stores, barriers and exits so far: a launch without any for long hangs
  std::vector<Warp*> woken{};  // since the scheduler last looked
  Counts* counts = nullptr;    // or none are wanted
  KernelCounts* kernel_counts = nullptr;
  AsyncQueue async{};
  Epochs epochs{};

  uint64_t warps() const { return grid.count() * ((block.count() + kLanes - 1) / kLanes); }
  void wake(Warp& warp);  // which waited
};

enum class Reduction { none, count, all, any };  // of bar.red, in Op::immediate

struct Barrier {
  uint32_t expected = 0;  // threads
  uint32_t arrived = 0;   // 0: nobody has come yet
  bool is_for_all = false;
  std::vector<Warp*> waiting, arrivers;
  Knowledge known_elsewhere{}, observed{};
  uint32_t ayes = 0;            // of bar.red: threads whose predicate holds
  std::vector<uint32_t> known;  // what happened before the arrivals, as in Warp
  void begin();                 // anew
};

struct Block {
  Launch* launch = nullptr;
  Dim id;
  Cluster* cluster = nullptr;
  uint32_t rank = 0;  // in the cluster
  std::vector<Warp> warps;
  std::vector<unsigned char> registers;
  std::vector<unsigned char> shared, shared_state;  // state: one byte per byte, ByteState
  RaceShadow shared_races{true};
  std::array<Barrier, 16> barriers;
  std::vector<Products> products;  // of each warp; none in kernels without
  std::vector<Warpgroup> warpgroups;
  RegisterPool register_pool;
  int live_warps = 0;
  uint64_t copies_in_flight = 0;           // of all warps
  std::map<uint64_t, Mbarrier> mbarriers;  // by offset in its shared memory
  std::vector<AsyncHandle> loads;          // to its shared memory
  std::map<int, BulkGroups> stores;        // by thread
  std::map<uint32_t, Visit> visits;        // of warps of other blocks, by serial

  Mark started = 0;  // smaller ones on its shared memory are those of an earlier block
  Mark settled = 0;  // what the block's warps did under smaller marks happened before now, for all of them

  // Marks on the block's shared memory that may still be in a race. Only where none but its warps touch it
  // does a barrier settle all.
  Mark first_unsettled() const { return launch->async.is_used() || launch->has_clusters ? started : settled; }
  const Kernel& kernel() const { return *launch->kernel; }
  uint32_t first_serial() const { return warps[0].serial; }
  // One warp comes to a barrier that `expected` threads meet at (0: all of the block), and waits or goes on.
  void arrive(Warp& warp, uint32_t barrier, uint32_t expected, bool waits);
  // A barrier of all threads that others still wait at is then a finding.
  void warp_ended(Warp& warp);

 private:
  void complete(Barrier& barrier);
};

// Of a special register, in special.cpp.
uint32_t value_of(Special special, const Warp& warp, uint32_t lane);
bool varies_by_block(Special special);  // or of blocks in the same place, one after the other, is the same

// Runs all of it; throws Finding at the first thing wrong.
void execute(Launch& launch);

}  // namespace flatshard::ptx_vm
