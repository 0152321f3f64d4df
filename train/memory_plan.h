#pragma once
// All memory of a run, one arena for each purpose. The trainer builds everything once in plan mode, which
// counts; commit() allocates that to the byte, and from then on nothing more is allocated.

#include <array>
#include <string>

#include "comm/sharded_unit.h"
#include "runtime/arena.h"

namespace flatshard {

class MemoryPlan {
 public:
  explicit MemoryPlan(Device device);

  Arena parameters, gathered, optimizer, gradients, exchange, activations, scratch, batch, tables;

  UnitArenas units() { return {parameters, gathered, optimizer, gradients, exchange}; }
  void commit(CommitOptions options = {});
  int64_t peak() const;  // of all arenas together
  // One line for each purpose and their sum.
  std::string table() const;

 private:
  std::array<Arena*, 9> all();
  std::array<const Arena*, 9> all() const;
};

// 14.2 MiB
std::string human_bytes(int64_t bytes);

}  // namespace flatshard
