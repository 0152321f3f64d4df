#pragma once
// The memory of all tensors of a run, one arena per purpose. A planning pass constructs everything and counts
// the bytes; commit() then allocates exactly that, and a step allocates no tensor outside of it.

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "comm/sharded_unit.h"
#include "runtime/arena.h"

namespace flatshard {

// A line of the memory table: an arena, a subtotal, or the sum of all arenas, which comes last.
struct MemoryRow {
  std::string name;
  int64_t bytes = 0;
  std::string what;  // contents of the arena; "" for the sum
};

class MemoryPlan {
 public:
  // With offload, shards, optimizer state and gradients are in host memory. `shared`: the tensors that ranks
  // exchange are in memory that their GPUs share.
  explicit MemoryPlan(Device device, bool offload = false, bool shared = false);

  Arena parameters, gathered, optimizer, paged, gradients, exchange, activations, scratch, batch, tables;
  // Host memory: the host side of a GPU's inputs and results, and the snapshot of an asynchronous checkpoint.
  Arena staging;
  Arena transport;  // host memory: GPU tensors in transit between ranks
  Arena stored;     // host memory: activations until their backward pass

  // The arena of an activation slot, which belongs to a micro-batch in flight. The first is `activations`; a
  // planning pass adds the others.
  Arena& slot(size_t index);

  UnitArenas units() { return {parameters, gathered, optimizer, paged, gradients, exchange}; }
  void commit(CommitOptions options = {});
  int64_t peak() const;       // sum over all arenas
  int64_t offloaded() const;  // the part that is in host memory due to offload
  int64_t on_host() const;    // the part that is in host memory
  std::vector<MemoryRow> rows() const;

 private:
  std::array<Arena*, 13> all();
  std::array<const Arena*, 13> all() const;
  int64_t peak_of(const Arena& arena) const;  // includes all slots

  bool offload_;
  std::deque<Arena> more_slots_;
};

}  // namespace flatshard
