#pragma once
// Plays the streams of a step as events. A row stands for ranks that do the same work at the same time, such
// as those of a pipeline stage, so the cost of a replay depends on the number of rows, not on the number of
// ranks.
//
// Items of a stream run one after another. Items of different streams run together and slow each other down
// where they use the same resource: whenever one begins or ends, the rates of the others in its row change.

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/recording.h"

namespace flatshard {

// The resource that an item keeps busy.
enum class Use : uint8_t {
  kernels,    // the multiprocessors or the memory of a GPU, or the compute threads of a CPU rank
  links,      // connections inside a host
  network,    // connections between hosts
  to_device,  // the bus between host and device, in this direction
  to_host,
  host,  // work of the host's processors
};

struct ReplayItem {
  enum class Kind : uint8_t { work, meeting, record, wait };
  Kind kind = Kind::work;
  Use use = Use::kernels;
  int stream = 0;
  double seconds = 0;  // time alone; of a meeting: time after the last row has arrived
  // The pause between the item before it and its begin, on a rank that runs compute work at the call.
  double gap = 0;
  // The shares of the memory's rate and of the multiprocessors that it uses while it runs alone. Exchanges
  // and copies take theirs from kernels.
  double processors = 0, memory = 0;
  // The number of a record, of the record that a wait waits for, or of a meeting, which has an item in each
  // of its rows.
  int number = -1;
};

struct ReplayRow {
  int streams = 0;
  // The stream whose work runs at the call and so delays the calls after it, or -1 if work is only enqueued.
  int host_stream = -1;
  bool in_order = false;              // all work runs at the call, on every stream
  double issue_seconds = 0;           // time to enqueue an item; items begin no earlier
  std::vector<ReplayItem> items;      // items in the order of the calls
  std::vector<ReplayItem> carried{};  // earlier items, of the step before: carried_work()
};

// The times of an item. A wait begins at the end of the item before it, a meeting at the arrival of its row.
struct ReplayTimes {
  double begin = 0, end = 0;
};

struct Replayed {
  double seconds = 0;                           // end of the last item of all rows
  std::vector<std::vector<ReplayTimes>> times;  // times by row and item, without carried items
};

// An Error if the rows wait for each other forever.
Replayed replay(const std::vector<ReplayRow>& rows);

// The items that carry over into a row that plays a step after an equal step, whose items had the times
// `before`: exchanges that are still running when the step begins, such as gathers of updated weights. The
// step begins at `begin`.
std::vector<ReplayItem> carried_work(const ReplayRow& row, const Recording& recording,
                                     const std::vector<ReplayTimes>& before, double begin);

}  // namespace flatshard
