#include "ptx_vm/timeline.h"

#include <algorithm>

namespace flatshard::ptx_vm {

void merge(Clock& into, const Clock& from) {
  if (into.size() < from.size()) into.resize(from.size(), 0);
  for (size_t s = 0; s < from.size(); ++s) into[s] = std::max(into[s], from[s]);
}

void put(Clock& clock, Point p) {
  if (clock.size() <= p.stream) clock.resize(p.stream + size_t{1}, 0);
  clock[p.stream] = std::max(clock[p.stream], p.position);
}

// A mark tells operations apart by its epoch alone, so each has one.
Activity& Timeline::begin(Activity activity) {
  activity.epochs = Epochs();
  activity.first_mark = activity.epochs.first_mark();
  activity.epochs.add({});
  return all_.emplace_back(std::move(activity));
}

const Activity* Timeline::find(Mark mark) const {
  const auto after = std::upper_bound(all_.begin(), all_.end(), mark,
                                      [](Mark m, const Activity& a) { return m < a.first_mark; });
  return after == all_.begin() ? nullptr : &*std::prev(after);
}

Mark Timeline::end_of(const Activity& past) const {
  const auto next = std::upper_bound(all_.begin(), all_.end(), past.first_mark,
                                     [](Mark m, const Activity& a) { return m < a.first_mark; });
  return next == all_.end() ? Epochs::next_mark() : next->first_mark;
}

Mark Timeline::settled_before(const Activity& now) const {
  for (const Activity& past : all_)
    if (!covers(now.clock, past.point)) return past.first_mark;
  return now.first_mark;
}

void Past::ask(Mark mark) {
  const bool is_to_come = mark >= Epochs::next_mark();
  const Activity* past = is_to_come ? nullptr : timeline().find(mark);
  answer_ = past ? covers(now_->clock, past->point) : !is_to_come;
  asked_first_ = past ? past->first_mark : mark;
  asked_count_ = past ? timeline().end_of(*past) - asked_first_ : 1;
}

void Timeline::forget(const Clock& clock) {
  while (!all_.empty() && covers(clock, all_.front().point)) all_.pop_front();
}

Timeline& timeline() {
  static Timeline* const only = new Timeline;
  return *only;
}

}  // namespace flatshard::ptx_vm
