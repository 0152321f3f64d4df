#pragma once
// All memory of a run, one arena for each purpose. The trainer builds everything once in plan mode, which
// counts; commit() allocates that to the byte, and from then on nothing more is allocated.

#include <array>
#include <string>
#include <vector>

#include "comm/sharded_unit.h"
#include "runtime/arena.h"

namespace flatshard {

// A line of the memory table: an arena, a subtotal, or the sum of all arenas, which comes last.
struct MemoryRow {
  std::string name;
  int64_t bytes = 0;
  std::string what;  // "" for the sum
};

class MemoryPlan {
 public:
  // Offload: the shards and what the optimizer works with lie in host memory.
  explicit MemoryPlan(Device device, bool offload = false);

  Arena parameters, gathered, optimizer, gradients, exchange, activations, scratch, batch, tables;
  // Of a GPU's run, what the host writes and reads, in its own memory; and what a checkpoint is written from.
  Arena staging;
  Arena transport;  // by way of which a GPU's tensors travel to other ranks

  UnitArenas units() { return {parameters, gathered, optimizer, gradients, exchange}; }
  void commit(CommitOptions options = {});
  int64_t peak() const;       // of all arenas together
  int64_t offloaded() const;  // of these, of what lies in host memory because it is offloaded
  int64_t on_host() const;    // of what lies in host memory at all
  std::vector<MemoryRow> rows() const;

 private:
  std::array<Arena*, 11> all();
  std::array<const Arena*, 11> all() const;

  bool offload_;
};

}  // namespace flatshard
