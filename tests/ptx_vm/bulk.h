#pragma once
// Copies of whole pieces of memory by the block's copy engine. A load reports its bytes to an mbarrier.
// Stores belong to the thread that issues them: it puts them into groups and waits for these, first until
// shared memory has been read, then until all is written. Each store is two works, a read and a write after
// it.

#include <cstdint>
#include <functional>
#include <vector>

#include "tests/ptx_vm/async.h"
#include "tests/ptx_vm/mbarrier.h"

namespace flatshard::ptx_vm {

using Bytes = std::vector<unsigned char>;

// Where one copy of a load ends: the mbarrier counts all of its bytes.
void issue_load(Warp& warp, int lane, const MbarrierPlace& barrier, int64_t bytes,
                std::function<void(Warp& actor)> copy);
void issue_store(Warp& warp, int lane, std::function<Bytes(Warp& actor)> read,
                 std::function<void(Warp& actor, const Bytes& data)> write);

// The stores of one thread.
struct BulkGroups {
  struct Store {
    AsyncHandle read, write;
    bool is_read = false;  // and the thread has waited for that
  };
  std::vector<Store> open;
  std::vector<std::vector<Store>> committed;
};
void commit_stores(Warp& warp, int lane);
// For all groups but the latest `groups`: until they have read, or until they have written too.
void wait_for_stores(Warp& warp, int lane, uint64_t groups, bool reads_only);
// The last warp of a block ends: loads to its memory that none of them waited for are a finding.
void check_loads_waited(Block& block);
// The warp ends: stores that its threads never waited for are a finding.
void check_stores_waited(Warp& warp);

}  // namespace flatshard::ptx_vm
