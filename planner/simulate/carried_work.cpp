#include <algorithm>
#include <map>

#include "planner/simulate/replay.h"

namespace flatshard {
namespace {

using Kind = ReplayItem::Kind;

// The records for which this step waits although the step before makes them, by the number of the record
// that this step makes in the same place.
std::map<int, int> awaited_records(const ReplayRow& row, const Recording& recording) {
  std::map<int, int> awaited;
  for (const ReplayItem& item : row.items)
    if (item.kind == Kind::wait && item.number < recording.first_record())
      awaited[recording.last_record(item.number)] = item.number;
  return awaited;
}

}  // namespace

std::vector<ReplayItem> carried_work(const ReplayRow& row, const Recording& recording,
                                     const std::vector<ReplayTimes>& before, double begin) {
  const std::map<int, int> awaited = awaited_records(row, recording);
  std::vector<double> ends(static_cast<size_t>(row.streams), begin);  // ends of carried items, by stream
  std::vector<ReplayItem> carried;
  for (size_t i = 0; i < row.items.size(); ++i) {
    ReplayItem item = row.items[i];
    double& end = ends[static_cast<size_t>(item.stream)];
    if (item.kind == Kind::record) {
      const auto at = awaited.find(item.number);
      if (end == begin || at == awaited.end()) continue;
      item.number = at->second;
    } else {
      if (item.kind == Kind::wait || before[i].end <= end) continue;
      const double from = std::max(before[i].begin, end);
      item.kind = Kind::work;
      item.number = -1;
      item.gap = from - end;
      item.seconds = before[i].end - from;
      end = before[i].end;
    }
    carried.push_back(item);
  }
  return carried;
}

}  // namespace flatshard
