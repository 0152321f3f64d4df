#include "planner/simulate/replay.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

using Kind = ReplayItem::Kind;
constexpr int kCompute = 0, kGather = 1;

// A step as a run records it: it waits for what the step before gathered, and gathers the same at its end.
struct Step {
  Recording recording;
  ReplayRow row{.streams = 2, .items = {}};

  Step() {
    recording.add_stream("compute", false);
    recording.add_stream("gather", true);
    recording.pause(true);
    const int before[] = {recording.add_record(kGather, -1), recording.add_record(kGather, -1)};
    recording.pause(false);
    for (const int record : before) {
      wait(record);
      work(kCompute, 10);
    }
    for (const int record : before) {
      work(kGather, 4);
      const int number = recording.add_record(kGather, record);
      row.items.push_back({.kind = Kind::record, .stream = kGather, .number = number});
    }
  }
  void wait(int record) {
    recording.add_wait(kCompute, record);
    row.items.push_back({.kind = Kind::wait, .stream = kCompute, .number = record});
  }
  void work(int stream, double seconds) { row.items.push_back({.stream = stream, .seconds = seconds}); }
};

}  // namespace

TEST_CASE("what a step leaves to the next one delays what waits for it") {
  Step step;
  std::vector<ReplayTimes> times(step.row.items.size());
  times[1] = {0, 10}, times[3] = {10, 20};
  times[4] = {18, 22}, times[6] = {23, 27};
  const std::vector<ReplayItem> carried = carried_work(step.row, step.recording, times, 20);
  REQUIRE(carried.size() == 4);
  CHECK(carried[0].seconds == 2);  // the rest of a gather that has begun
  CHECK(carried[2].gap == 1);
  CHECK(carried[2].seconds == 4);
  step.row.carried = carried;
  const Replayed played = replay({step.row});
  REQUIRE(played.times[0].size() == step.row.items.size());
  CHECK(played.times[0][1].begin == 2);
  CHECK(played.times[0][3].begin == 12);  // the second gather has ended at 7
}

TEST_CASE("a step that leaves nothing changes nothing") {
  const Step step;
  const std::vector<ReplayTimes> times(step.row.items.size(), ReplayTimes{0, 20});
  CHECK(carried_work(step.row, step.recording, times, 20).empty());
}
