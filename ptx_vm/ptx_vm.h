#pragma once
// The interface of the machine for programs and tests that know it: scheduling options, findings and
// counters. Everything else is the ordinary CUDA runtime API, so other programs need no header of the
// machine.

#include <cstdint>
#include <string>
#include <vector>

#include "ptx_vm/report.h"

namespace flatshard::ptx_vm {

enum class Schedule {
  in_order,     // the first runnable warp, until it waits
  reverse,      // the last runnable warp, until it waits
  round_robin,  // each warp for a few instructions
  random,       // a random warp for a random number of instructions
};

class Counts;

// The times at which asynchronous work runs: bulk copies and warpgroup products.
enum class AsyncTiming {
  early,   // runs at issue
  late,    // runs when a warp waits for it or nothing else can run
  random,  // runs at any time between
};

// The times at which stream operations run.
enum class WorkOrder {
  in_order,    // runs at the call, or when communication before it in the stream has ended
  comm_late,   // runs when the host waits; communication only when another operation waits, or at the end
  comm_early,  // communication as soon as events allow, other work when the host waits
  random,      // any ready operation, at any time
};
enum class WorkRole { compute, comm };  // role of a stream; comm: created with the highest priority

struct Options {
  Schedule schedule = Schedule::round_robin;
  uint64_t seed = 1;
  uint32_t resident_blocks = 0;  // blocks that run concurrently; 0: as many as fit on the device
  bool finds_races = true;
  AsyncTiming async = AsyncTiming::random;
  Counts* counts = nullptr;  // launches add their costs here (counts.h); slow
  WorkOrder stream_order = WorkOrder::in_order;
  // Parts of names of kernels that may use float atomics in global memory; "*": all may.
  std::vector<std::string> may_add_floats{};
  bool pairwise_mma = false;  // tensor cores add products in pairs first; results must stay within tolerance
  // Shifts dynamic shared memory by 16 or 128 bytes, to find kernels that assume more than the guaranteed
  // alignment.
  uint32_t shared_shift = 0;
  int arch = 90;  // architecture of the device: 80 or 90. It runs the newest kernel code that it supports
};

std::string describe(const Options& options);  // environment variables that reproduce the run

// Changes take effect at the next launch. Initial values come from PTX_VM_SCHED, PTX_VM_SEED,
// PTX_VM_RESIDENT, PTX_VM_SHIFT, PTX_VM_ASYNC, PTX_VM_ORDER, PTX_VM_ARCH, PTX_VM_MMA and
// PTX_VM_FLOAT_ATOMICS (README.md).
Options& options();

// Sets the options for a scope and restores the old ones at its end.
class ScopedOptions {
 public:
  explicit ScopedOptions(const Options& now) : before_(options()) { options() = now; }
  ~ScopedOptions() { options() = before_; }
  ScopedOptions(const ScopedOptions&) = delete;
  ScopedOptions& operator=(const ScopedOptions&) = delete;

 private:
  Options before_;
};

// Like a fault on a GPU, a finding aborts its launch and makes every later CUDA call fail until it is taken.
// A finding that is neither taken nor returned by cudaGetErrorString is printed when the program exits.
void add_finding(Finding finding);
const std::vector<Finding>& findings();
std::vector<Finding> take_findings();
// Resets the error that cudaGetLastError() returns.
void forget_last_error();

// Overrides the role of a cudaStream_t.
void set_role(void* stream, WorkRole role);

// The rule that the last call of cuTensorMapEncodeTiled violated, or nothing.
const std::string& tensor_map_error();

struct Counters {
  uint64_t launches = 0, warp_instructions = 0, copied_bytes = 0, graph_launches = 0;
};
Counters& counters();

}  // namespace flatshard::ptx_vm
