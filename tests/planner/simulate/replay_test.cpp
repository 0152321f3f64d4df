#include "planner/simulate/replay.h"

#include "tests/test.h"

using namespace flatshard;

namespace {

using Kind = ReplayItem::Kind;

ReplayItem work(int stream, double seconds) { return {.stream = stream, .seconds = seconds}; }
ReplayItem record(int stream, int number) {
  return {.kind = Kind::record, .stream = stream, .number = number};
}
ReplayItem wait(int stream, int number) { return {.kind = Kind::wait, .stream = stream, .number = number}; }
ReplayItem meeting(int stream, int number, double seconds) {
  return {.kind = Kind::meeting, .use = Use::links, .stream = stream, .seconds = seconds, .number = number};
}

double seconds_of(std::vector<ReplayItem> items) {
  return replay({{.streams = 2, .items = std::move(items)}}).seconds;
}

}  // namespace

TEST_CASE("a replay runs streams side by side, and waits where an event says so") {
  CHECK(seconds_of({work(0, 3), work(1, 2)}) == doctest::Approx(3));
  CHECK(seconds_of({work(0, 3), record(0, 0), wait(1, 0), work(1, 2)}) == doctest::Approx(5));
  // A record that the step does not contain was made before it.
  CHECK(seconds_of({wait(1, 7), work(1, 2)}) == doctest::Approx(2));
}

TEST_CASE("in a replay, items begin when the host has enqueued them") {
  CHECK(replay({{.streams = 1, .issue_seconds = 1, .items = {work(0, 0.5), work(0, 0.5)}}}).seconds ==
        doctest::Approx(2.5));
  // The compute stream runs its work at the call, so the other stream gets its second item late.
  CHECK(replay({{.streams = 2, .host_stream = 0, .items = {work(1, 1), work(0, 5), work(1, 1)}}}).seconds ==
        doctest::Approx(6));
  CHECK(replay({{.streams = 2, .in_order = true, .items = {work(1, 1), work(0, 5), work(1, 1)}}}).seconds ==
        doctest::Approx(7));
}

TEST_CASE("in a replay, items that use the same resource slow each other down") {
  ReplayItem product = work(0, 10), gather{.use = Use::links, .stream = 1, .seconds = 5, .processors = 0.2};
  product.processors = 1;
  // For 5 s the product runs at 0.8 of its rate, so 6 of its 10 s are left.
  CHECK(seconds_of({product, gather}) == doctest::Approx(5 + 6));
  ReplayItem copy{.use = Use::to_device, .stream = 0, .seconds = 2}, other = copy;
  other.stream = 1;
  CHECK(seconds_of({copy, other}) == doctest::Approx(4));
  other.use = Use::to_host;  // the other direction of the bus
  CHECK(seconds_of({copy, other}) == doctest::Approx(2));
  ReplayItem reads = work(0, 4), writes = work(1, 4);
  reads.memory = 1, writes.memory = 0.5;
  CHECK(seconds_of({reads, writes}) == doctest::Approx(6));
}

TEST_CASE("an exchange of rows begins when the last of them has come, and ends for all at once") {
  const Replayed both = replay({{.streams = 1, .items = {work(0, 1), meeting(0, 0, 2), work(0, 1)}},
                                {.streams = 1, .items = {work(0, 5), meeting(0, 0, 2)}}});
  CHECK(both.seconds == doctest::Approx(8));
  CHECK(both.times[0][1].begin == doctest::Approx(1));
  CHECK(both.times[0][1].end == doctest::Approx(7));
  CHECK(both.times[1][1].begin == doctest::Approx(5));
}

TEST_CASE("a replay that waits for itself is an error") {
  const auto both_wait = [] {
    replay({{.streams = 1, .items = {meeting(0, 0, 1), meeting(0, 1, 1)}},
            {.streams = 1, .items = {meeting(0, 1, 1), meeting(0, 0, 1)}}});
  };
  CHECK(test::error_of(both_wait).find("row 0, item 0 of 2") != std::string::npos);
}
