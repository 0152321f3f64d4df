#include "planner/simulate/replay.h"

#include <algorithm>
#include <array>
#include <limits>
#include <queue>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// Times closer than this, relative to the time of the step, are one event.
constexpr double kSameTime = 1e-12;

class Replay {
 public:
  explicit Replay(const std::vector<ReplayRow>& rows) : rows_(rows), states_(rows.size()) {
    int meetings = 0;
    for (const ReplayRow& row : rows)
      for (const ReplayItem& item : row.items)
        if (item.kind == ReplayItem::Kind::meeting) meetings = std::max(meetings, item.number + 1);
    meetings_.resize(static_cast<size_t>(meetings));
    for (size_t r = 0; r < rows.size(); ++r) prepare(r);
  }

  Replayed run() {
    for (size_t r = 0; r < rows_.size(); ++r) changed_.push_back(r);
    settle(0);
    while (!events_.empty()) {
      const Event event = events_.top();
      events_.pop();
      if (event.version != states_[event.row].version) continue;
      finish_until(event.row, event.time);
      settle(event.time);
    }
    Replayed result;
    for (size_t r = 0; r < rows_.size(); ++r) {
      for (const Line& line : states_[r].lines)
        check(line.next == line.items.size(), "the recorded step waits for itself: row ", r, ", item ",
              line.next, " of ", line.items.size(), " of a stream never begins");
      for (const ReplayTimes& times : states_[r].times) result.seconds = std::max(result.seconds, times.end);
      result.times.push_back(std::move(states_[r].times));
    }
    return result;
  }

 private:
  // A stream.
  struct Line {
    std::vector<int> items;
    size_t next = 0;
    bool runs = false;  // items[next] has begun
    bool owns = true;   // false: another row of the same meeting counts the progress
    double left = 0, rate = 1, free = 0;
    bool done() const { return next == items.size(); }
    int front() const { return items[next]; }
  };
  struct Row {
    std::vector<Line> lines;
    std::vector<ReplayTimes> times;
    std::vector<bool> recorded;
    double now = 0;
    int64_t version = 0;
    int ended = 0;  // number of ended items
  };
  struct Meeting {
    std::vector<std::pair<size_t, size_t>> arrived;  // row and stream
    int rows = 0;
    double seconds = 0;
  };
  struct Event {
    double time;
    size_t row;
    int64_t version;
    bool operator<(const Event& other) const { return time > other.time; }
  };

  const ReplayItem& item(size_t row, int index) const { return rows_[row].items[static_cast<size_t>(index)]; }
  ReplayTimes& times(size_t row, int index) { return states_[row].times[static_cast<size_t>(index)]; }

  void prepare(size_t r) {
    const ReplayRow& row = rows_[r];
    Row& state = states_[r];
    state.lines.resize(static_cast<size_t>(row.streams));
    state.times.resize(row.items.size());
    int records = 0;
    for (size_t i = 0; i < row.items.size(); ++i) {
      const ReplayItem& item = row.items[i];
      state.lines[static_cast<size_t>(item.stream)].items.push_back(static_cast<int>(i));
      if (item.kind == ReplayItem::Kind::record) records = std::max(records, item.number + 1);
      if (item.kind == ReplayItem::Kind::meeting) {
        Meeting& meeting = meetings_[static_cast<size_t>(item.number)];
        ++meeting.rows;
        meeting.seconds = std::max(meeting.seconds, item.seconds);
      }
    }
    // A wait for a record from before the step, which has no item, finds it done.
    state.recorded.assign(static_cast<size_t>(records), true);
    for (const ReplayItem& item : row.items)
      if (item.kind == ReplayItem::Kind::record) state.recorded[static_cast<size_t>(item.number)] = false;
  }

  // The time at which the host has enqueued an item; kNever if that depends on work that has not ended.
  double issued(size_t r, int index) const {
    const ReplayRow& row = rows_[r];
    if (row.in_order) return states_[r].ended == index ? 0 : kNever;
    if (row.host_stream < 0)
      return row.issue_seconds * std::max(0, index + 1 - static_cast<int>(row.carried.size()));
    const Line& host = states_[r].lines[static_cast<size_t>(row.host_stream)];
    if (item(r, index).stream == row.host_stream || host.done() || index < host.front()) return 0;
    return kNever;
  }

  // Advances the work of a row to `time` and ends the complete items.
  void finish_until(size_t r, double time) {
    Row& row = states_[r];
    const double elapsed = time - row.now;
    row.now = time;
    for (size_t s = 0; s < row.lines.size(); ++s) {
      Line& line = row.lines[s];
      if (!line.runs || !line.owns) continue;
      line.left -= elapsed * line.rate;
      if (line.left > kSameTime * (1 + time)) continue;
      const ReplayItem& ended = item(r, line.front());
      if (ended.kind == ReplayItem::Kind::meeting)
        for (const auto& [other, stream] : meetings_[static_cast<size_t>(ended.number)].arrived)
          end_front(other, stream, time);
      else
        end_front(r, s, time);
    }
    changed_.push_back(r);
  }

  void end_front(size_t r, size_t stream, double time) {
    Line& line = states_[r].lines[stream];
    times(r, line.front()).end = time;
    line.runs = false;
    line.free = time;
    ++line.next;
    ++states_[r].ended;
    changed_.push_back(r);
  }

  // Begins everything that can begin, in all rows that changed, and schedules their next events.
  void settle(double time) {
    std::vector<size_t>& touched = touched_;
    touched.clear();
    while (!changed_.empty()) {
      const size_t r = changed_.back();
      changed_.pop_back();
      touched.push_back(r);
      if (states_[r].now < time) advance(r, time);
      while (begin_some(r, time)) {
      }
    }
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    for (const size_t r : touched) schedule(r, time);
  }

  void advance(size_t r, double time) {
    Row& row = states_[r];
    for (Line& line : row.lines)
      if (line.runs && line.owns) line.left -= (time - row.now) * line.rate;
    row.now = time;
  }

  bool begin_some(size_t r, double time) {
    Row& row = states_[r];
    bool any = false;
    for (size_t s = 0; s < row.lines.size(); ++s) {
      Line& line = row.lines[s];
      while (!line.runs && !line.done() && issued(r, line.front()) <= time) {
        if (!begin_front(r, s, time)) break;
        any = true;
      }
    }
    return any;
  }

  // Returns whether the front item of a stream has begun or, if it takes no time, ended.
  bool begin_front(size_t r, size_t s, double time) {
    Row& row = states_[r];
    Line& line = row.lines[s];
    const int index = line.front();
    const ReplayItem& front = item(r, index);
    const auto pass = [&](double from) {
      times(r, index) = {from, time};
      line.free = time;
      ++line.next;
      ++row.ended;
      return true;
    };
    switch (front.kind) {
      case ReplayItem::Kind::record:
        row.recorded[static_cast<size_t>(front.number)] = true;
        return pass(time);
      case ReplayItem::Kind::wait:
        if (static_cast<size_t>(front.number) < row.recorded.size() &&
            !row.recorded[static_cast<size_t>(front.number)])
          return false;
        return pass(line.free);
      case ReplayItem::Kind::work:
        line.runs = line.owns = true;
        line.left = front.gap + front.seconds;
        times(r, index).begin = time + front.gap;
        return true;
      case ReplayItem::Kind::meeting:
        return arrive(r, s, time);
    }
    return false;
  }

  // The last row to arrive counts the progress of a meeting.
  bool arrive(size_t r, size_t s, double time) {
    Line& line = states_[r].lines[s];
    Meeting& meeting = meetings_[static_cast<size_t>(item(r, line.front()).number)];
    const std::pair<size_t, size_t> here{r, s};
    if (std::find(meeting.arrived.begin(), meeting.arrived.end(), here) != meeting.arrived.end())
      return false;
    meeting.arrived.push_back(here);
    times(r, line.front()).begin = time;
    if (static_cast<int>(meeting.arrived.size()) < meeting.rows) return false;
    for (const auto& [other, stream] : meeting.arrived) {
      Line& its = states_[other].lines[stream];
      its.runs = true;
      its.owns = other == r && stream == s;
      if (other != r) changed_.push_back(other);
    }
    line.left = meeting.seconds;
    return true;
  }

  // The shares that exchanges and copies leave to the kernels of a row, the shares that the kernels want
  // together, and the number of items that share each other resource.
  struct Shares {
    double processors = 1, memory = 1, wanted_processors = 0, wanted_memory = 0;
    std::array<int, 6> uses{};
  };
  Shares shares_of(size_t r) const {
    Shares shares;
    for (const Line& line : states_[r].lines) {
      if (!line.runs) continue;
      const ReplayItem& running = item(r, line.front());
      ++shares.uses[static_cast<size_t>(running.use)];
      const bool kernel = running.use == Use::kernels;
      (kernel ? shares.wanted_processors : shares.processors) += (kernel ? 1 : -1) * running.processors;
      (kernel ? shares.wanted_memory : shares.memory) += (kernel ? 1 : -1) * running.memory;
    }
    constexpr double kLeast = 0.1;  // kernels never stop: the least share
    shares.processors = std::max(shares.processors, kLeast);
    shares.memory = std::max(shares.memory, kLeast);
    return shares;
  }
  static double rate_of(const ReplayItem& running, const Shares& shares) {
    if (running.use != Use::kernels) return 1.0 / shares.uses[static_cast<size_t>(running.use)];
    double rate = 1;
    if (running.processors > 0) rate = std::min(rate, shares.processors / shares.wanted_processors);
    if (running.memory > 0) rate = std::min(rate, shares.memory / shares.wanted_memory);
    return rate;
  }

  void schedule(size_t r, double time) {
    Row& row = states_[r];
    const Shares shares = shares_of(r);
    double next = kNever;
    for (Line& line : row.lines) {
      if (line.runs && line.owns) {
        line.rate = rate_of(item(r, line.front()), shares);
        next = std::min(next, time + std::max(line.left, 0.0) / line.rate);
      } else if (!line.runs && !line.done()) {
        const double at = issued(r, line.front());
        if (at > time) next = std::min(next, at);
      }
    }
    ++row.version;
    if (next < kNever) events_.push({next, r, row.version});
  }

  const std::vector<ReplayRow>& rows_;
  std::vector<Row> states_;
  std::vector<Meeting> meetings_;
  std::priority_queue<Event> events_;
  std::vector<size_t> changed_, touched_;
};

}  // namespace

Replayed replay(const std::vector<ReplayRow>& rows) {
  const auto carries = [](const ReplayRow& row) { return !row.carried.empty(); };
  if (std::none_of(rows.begin(), rows.end(), carries)) return Replay(rows).run();
  std::vector<ReplayRow> whole = rows;
  for (ReplayRow& row : whole) row.items.insert(row.items.begin(), row.carried.begin(), row.carried.end());
  Replayed played = Replay(whole).run();
  for (size_t r = 0; r < rows.size(); ++r) {
    std::vector<ReplayTimes>& times = played.times[r];
    times.erase(times.begin(), times.begin() + std::ssize(rows[r].carried));
  }
  return played;
}

}  // namespace flatshard
