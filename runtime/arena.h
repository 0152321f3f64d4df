#pragma once
// All tensors of a run come from arenas. An arena begins in plan mode: it hands out tensors without memory
// and counts. commit() allocates exactly the peak that was counted, and the same calls then give the same
// places. Allocation is a bump, release is a rewind; memory that one stream uses is reused in that stream's
// order.

#include <cstdint>
#include <string>

#include "runtime/memory.h"
#include "runtime/tensor.h"

namespace flatshard {

struct CommitOptions {
  int64_t misalign = 0;  // tests: shift every tensor by this many bytes
  bool poison = false;   // tests: fill each tensor with 0xff bytes, which is NaN in every float dtype
  bool guard = false;    // tests under the address sanitizer: forbid the gap behind each tensor; for in_order
                         // streams only
};

class Arena {
 public:
  static constexpr int64_t kAlignment = 256;

  Arena(std::string name, Device device, Placement placement = Placement::plain);

  Tensor alloc(DType dtype, const Shape& shape);
  int64_t mark() const { return used_; }
  void rewind(int64_t mark);  // everything allocated after mark() is gone

  int64_t used() const { return used_; }
  int64_t peak() const { return peak_; }
  bool planning() const { return planning_; }
  const std::string& name() const { return name_; }
  Device device() const { return device_; }

  // Ends plan mode: allocates peak() bytes and starts over at zero. An allocation beyond that is an Error.
  void commit(CommitOptions options = {});

 private:
  std::string name_;
  Device device_;
  Placement placement_;
  CommitOptions options_;
  Memory memory_;
  int64_t capacity_ = 0, used_ = 0, peak_ = 0;
  bool planning_ = true;
};

// Gives back at the end of a block what was allocated in it. The memory may still be in use by work already
// given to the arena's stream; that is safe because the next user stands behind it in the same stream.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
  ~ArenaScope() { arena_.rewind(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  int64_t mark_;
};

}  // namespace flatshard
