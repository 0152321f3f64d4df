#pragma once
// The allocator of all tensors. An arena starts in plan mode: it returns tensors without memory and records
// the peak usage. commit() allocates exactly that peak, and the same sequence of calls then returns the same
// offsets. Allocation bumps an offset and release rewinds it. Reused memory is safe as long as all of its
// users work on the same stream.

#include <cstdint>
#include <string>

#include "runtime/memory.h"
#include "runtime/tensor.h"

namespace flatshard {

struct CommitOptions {
  int64_t misalign = 0;  // tests: shift every tensor by this many bytes
  bool poison = false;   // tests: fill each tensor with 0xff bytes, which is NaN in every float dtype
  bool guard = false;    // tests under the address sanitizer: poison the gap after each tensor; for in_order
                         // streams only
};

class Arena {
 public:
  static constexpr int64_t kAlignment = 256;

  Arena(std::string name, Device device, Placement placement = Placement::plain);

  Tensor alloc(DType dtype, const Shape& shape);
  int64_t mark() const { return used_; }
  void rewind(int64_t mark);  // releases everything allocated since mark()

  // Everything allocated since mark(), as one tensor of bytes.
  Tensor since(int64_t mark) const;

  int64_t used() const { return used_; }
  int64_t peak() const;  // most bytes in use so far; shared memory is counted in whole granules
  bool planning() const { return planning_; }
  const std::string& name() const { return name_; }
  Device device() const { return device_; }

  // The whole memory of a committed arena as one tensor of bytes.
  Tensor block() const { return {memory_.data(), DType::u8, {memory_.bytes()}, device_}; }

  // Ends plan mode: allocates peak() bytes and restarts at offset zero. Allocating more than that is an
  // Error.
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

// Releases, at the end of a scope, everything that was allocated in it. Work already enqueued on the arena's
// stream may still use the memory; that is safe because the next user is enqueued later on the same stream.
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
