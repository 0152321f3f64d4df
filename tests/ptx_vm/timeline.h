#pragma once
// What happened before what, among the operations of streams: kernels, copies, memsets. The operations of a
// stream follow one another; a wait puts a stream behind what stood before a record; all that the host has
// waited for comes before all that it gives out later. This holds in whatever order the machine happens to
// run them, so a missing wait is found in any.

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "tests/ptx_vm/race.h"

namespace flatshard::ptx_vm {

struct Kernel;

// Of each stream, how many of its operations happened before.
using Clock = std::vector<uint32_t>;
void merge(Clock& into, const Clock& from);

// An operation of a stream, counted from 1; 0 stands before the first.
struct Point {
  uint32_t stream = 0, position = 0;
};
inline bool covers(const Clock& clock, Point p) {
  return p.position == 0 || (p.stream < clock.size() && clock[p.stream] >= p.position);
}
void put(Clock& clock, Point p);  // so that it covers p

// An operation of a stream that runs or has run, as the shadow of memory knows it: by its marks, which are
// those from its first to the first of the next.
struct Activity {
  Point point{};
  Clock clock{};     // what happened before it, itself included
  std::string what;  // "kernel row_sums on stream 2 (comm)"
  Mark first_mark = 0;
  // Of a kernel, to name its threads.
  const Kernel* kernel = nullptr;
  uint32_t grid_x = 0, grid_y = 0, warps_of_block = 0, warps = 0, first_serial = 0;
  Epochs epochs{};
};

class Timeline {
 public:
  // An operation begins: what leaves a mark from now on belongs to it. It stays known until nothing can
  // conflict with it.
  Activity& begin(Activity activity);
  // The operation with this mark; null when it happened before everything that runs.
  const Activity* find(Mark mark) const;
  // The first mark that belongs to no operation before `past`, nor to it.
  Mark end_of(const Activity& past) const;
  // Smaller marks happened before `now`.
  Mark settled_before(const Activity& now) const;
  // What the clock covers happened before all that will run.
  void forget(const Clock& clock);

 private:
  std::deque<Activity> all_;  // as they ran
};

Timeline& timeline();

// What happened before an operation that runs now.
class Past {
 public:
  Past() = default;
  explicit Past(const Activity& now) : now_(&now), settled_(timeline().settled_before(now)) {}
  const Activity& now() const { return *now_; }
  // Smaller marks did.
  Mark settled() const { return settled_; }
  // Did the earlier operation with this mark?
  bool holds(Mark mark) {
    if (mark < settled_) return true;
    if (mark - asked_first_ >= asked_count_) ask(mark);
    return answer_;
  }

 private:
  void ask(Mark mark);

  const Activity* now_ = nullptr;
  Mark settled_ = 0;
  Mark asked_first_ = 0, asked_count_ = 0;  // the last question's operation, and its answer
  bool answer_ = true;
};

}  // namespace flatshard::ptx_vm
