#pragma once
// Bulk copies. A load reports its bytes to an mbarrier. Stores belong to the issuing thread, which commits
// them to groups and waits for the groups: until shared memory has been read, or until everything has been
// written. Each store consists of two works, a read and a subsequent write.

#include <cstdint>
#include <functional>
#include <vector>

#include "ptx_vm/async.h"
#include "ptx_vm/mbarrier.h"

namespace flatshard::ptx_vm {

using Bytes = std::vector<unsigned char>;

// Issues a load. The mbarrier counts all of its bytes.
void issue_load(Warp& warp, int lane, const MbarrierPlace& barrier, int64_t bytes,
                std::function<void(Warp& actor)> copy);
void issue_store(Warp& warp, int lane, std::function<Bytes(Warp& actor)> read,
                 std::function<void(Warp& actor, const Bytes& data)> write);

// The stores of one thread.
struct BulkGroups {
  struct Store {
    AsyncHandle read, write;
    bool is_read = false;  // the thread has waited for the read
  };
  std::vector<Store> open;
  std::vector<std::vector<Store>> committed;
};
void commit_stores(Warp& warp, int lane);
// Waits for all groups but the latest `groups`: for their reads, or also for their writes.
void wait_for_stores(Warp& warp, int lane, uint64_t groups, bool reads_only);
// Called at the exit of a block's last warp: a load into its memory without a wait is a finding.
void check_loads_waited(Block& block);
// Called at the exit of a warp: a store without a wait by its thread is a finding.
void check_stores_waited(Warp& warp);

}  // namespace flatshard::ptx_vm
