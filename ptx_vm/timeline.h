#pragma once
// The happens-before relation of stream operations: kernels, copies, memsets. Operations of a stream are
// ordered. A wait orders a stream after the work before a record. Work that the host has waited for happens
// before everything that it enqueues later. The relation does not depend on the order in which the machine
// runs the operations, so a missing wait is found in any order.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "ptx_vm/race.h"

namespace flatshard::ptx_vm {

struct Kernel;

// A vector clock: by stream, the number of its operations that happened before.
using Clock = std::vector<uint32_t>;
void merge(Clock& into, const Clock& from);

// An operation of a stream, counted from 1; 0 is before the first.
struct Point {
  uint32_t stream = 0, position = 0;
};
inline bool covers(const Clock& clock, Point p) {
  return p.position == 0 || (p.stream < clock.size() && clock[p.stream] >= p.position);
}
void put(Clock& clock, Point p);  // extends the clock to cover p

// A stream operation that is running or has run. The race shadow identifies it by its marks, which lie
// between its first mark and the first mark of the next operation.
struct Activity {
  Point point{};
  Clock clock{};     // operations that happened before it, including itself
  std::string what;  // a description such as "kernel row_sums on stream 2 (comm)"
  Mark first_mark = 0;
  // These members name the threads of kernels.
  const Kernel* kernel = nullptr;
  uint32_t grid_x = 0, grid_y = 0, warps_of_block = 0, warps = 0, first_serial = 0;
  Epochs epochs{};
};

class Timeline {
 public:
  // Begins an operation, to which later marks belong. It is kept until nothing can conflict with it.
  Activity& begin(Activity activity);
  // Returns the operation of this mark; null if it happened before everything that runs.
  const Activity* find(Mark mark) const;
  // Returns the first mark after the marks of `past` and of all operations before it.
  Mark end_of(const Activity& past) const;
  // Returns a mark: accesses with smaller marks happened before `now`.
  Mark settled_before(const Activity& now) const;
  // Records that everything covered by the clock happened before all later operations.
  void forget(const Clock& clock);

 private:
  std::deque<Activity> all_;  // sorted by time of execution
};

Timeline& timeline();

// The past of the running operation.
class Past {
 public:
  Past() = default;
  explicit Past(const Activity& now) : now_(&now), settled_(timeline().settled_before(now)) {}
  const Activity& now() const { return *now_; }
  // Accesses with smaller marks happened before the operation.
  Mark settled() const { return settled_; }
  // Whether the earlier operation with this mark happened before the running one.
  bool holds(Mark mark) {
    if (mark < settled_) return true;
    if (mark - asked_first_ >= asked_count_) ask(mark);
    return answer_;
  }

 private:
  void ask(Mark mark);

  const Activity* now_ = nullptr;
  Mark settled_ = 0;
  Mark asked_first_ = 0, asked_count_ = 0;  // a cache: the last queried operation, and the result
  bool answer_ = true;
};

}  // namespace flatshard::ptx_vm
