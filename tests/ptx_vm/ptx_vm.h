#pragma once
// What a test sees of the machine: how the next launches are scheduled, what was found, what was counted. The
// CUDA runtime's own functions, on which the program under test runs, need no header of ours.

#include <cstdint>
#include <string>
#include <vector>

#include "tests/ptx_vm/report.h"

namespace flatshard::ptx_vm {

enum class Schedule {
  in_order,     // the first warp that can run does, until it waits
  reverse,      // the last one
  round_robin,  // a few instructions each
  random,       // any, for some instructions
};

class Counts;

// When work that runs beside the warps is done: copies by the block, products of a warpgroup.
enum class AsyncTiming {
  early,   // when it is issued
  late,    // when somebody waits for it, or nothing else can go on
  random,  // at any time between
};

// When the work of streams runs.
enum class WorkOrder {
  in_order,    // at the call
  comm_late,   // when the host waits; that of communication only when somebody waits for it, or at the end
  comm_early,  // communication as soon as events allow, other work when the host waits
  random,      // any that may run next, at any time
};
enum class WorkRole { compute, comm };  // of a stream; comm: created with the highest priority

struct Options {
  Schedule schedule = Schedule::round_robin;
  uint64_t seed = 1;
  uint32_t resident_blocks = 0;  // how many run at a time; 0: as many as there are warps for on the device
  bool finds_races = true;
  AsyncTiming async = AsyncTiming::random;
  Counts* counts = nullptr;  // where launches add what they cost (counts.h); slow
  WorkOrder stream_order = WorkOrder::in_order;
  std::vector<std::string> may_add_floats{};  // names of kernels that may with atomics, in global memory
  bool pairwise_mma = false;  // tensor cores add products in pairs first: within tolerance all the same
  // Dynamic shared memory begins so many bytes beyond its alignment: 16 or 128, for kernels that take more
  // for granted than is promised.
  uint32_t shared_shift = 0;
  int arch = 90;  // the device's: 80 or 90. Of a kernel compiled for several, the best it can run is taken
};

std::string describe(const Options& options);  // as the environment variables that repeat it

// In effect from the next launch on. At start-up: PTX_VM_SCHED, PTX_VM_SEED, PTX_VM_RESIDENT, PTX_VM_SHIFT,
// PTX_VM_ASYNC, PTX_VM_ORDER, PTX_VM_ARCH and PTX_VM_MMA.
Options& options();

// Options of one test; the old ones return with its end.
class ScopedOptions {
 public:
  explicit ScopedOptions(const Options& now) : before_(options()) { options() = now; }
  ~ScopedOptions() { options() = before_; }
  ScopedOptions(const ScopedOptions&) = delete;
  ScopedOptions& operator=(const ScopedOptions&) = delete;

 private:
  Options before_;
};

// A finding ends its launch and makes every later CUDA call fail, as a fault on a GPU does, until it is
// taken.
void add_finding(Finding finding);
const std::vector<Finding>& findings();
std::vector<Finding> take_findings();

// Overrides the role of a cudaStream_t.
void set_role(void* stream, WorkRole role);

// The rule that the last call of cuTensorMapEncodeTiled broke, or nothing.
const std::string& tensor_map_error();

struct Counters {
  uint64_t launches = 0, warp_instructions = 0, copied_bytes = 0, graph_launches = 0;
};
Counters& counters();

}  // namespace flatshard::ptx_vm
