#include "runtime/stream.h"

#include <atomic>
#include <cmath>

#include "tests/runtime/small_trainer.h"
#include "tests/test.h"

using namespace flatshard;
using test::SmallTrainer;

namespace {

std::vector<float> train(StreamOrder order, int left_out = SmallTrainer::kNone) {
  return SmallTrainer(Device::cpu(), {.order = order}, left_out).train();
}

}  // namespace

TEST_CASE("a complete schedule gives the same bits in every stream order") {
  const auto expected = train(StreamOrder::in_order);
  for (const float value : expected) CHECK(std::isfinite(value));
  CHECK(train(StreamOrder::comm_late) == expected);
  CHECK(train(StreamOrder::comm_early) == expected);
  for (int repetition = 0; repetition < 20; ++repetition) CHECK(train(StreamOrder::concurrent) == expected);
}

TEST_CASE("leaving out any one wait or record is caught by the late or the early order, and by them alone") {
  const auto expected = train(StreamOrder::in_order);
  for (int site = 0; site < SmallTrainer::kSites; ++site) {
    CAPTURE(site);
    CHECK(train(StreamOrder::in_order, site) == expected);
    const bool caught =
        train(StreamOrder::comm_late, site) != expected || train(StreamOrder::comm_early, site) != expected;
    CHECK(caught);
  }
}

TEST_CASE("in_order runs work at the call, comm_late and comm_early when the host synchronizes") {
  for (const StreamOrder order : {StreamOrder::in_order, StreamOrder::comm_late, StreamOrder::comm_early}) {
    StreamSet streams(Device::cpu(), {.order = order});
    Stream& stream = streams.add("compute");
    bool ran = false;
    stream.run("work", [&] { ran = true; });
    CHECK(ran == (order == StreamOrder::in_order));
    stream.sync();
    CHECK(ran);
  }
}

TEST_CASE("comm_late runs communication that nothing waits for when its own stream is synchronized") {
  StreamSet streams(Device::cpu(), {.order = StreamOrder::comm_late});
  Stream &compute = streams.add("compute"), &comm = streams.add("comm", StreamRole::comm);
  int done = 0;
  comm.run("send", [&] { ++done; });
  compute.sync();
  CHECK(done == 0);
  comm.sync();
  CHECK(done == 1);
}

TEST_CASE("a wait keeps the recorded position when the event is recorded again") {
  StreamSet streams(Device::cpu(), {.order = StreamOrder::comm_late});
  Stream &compute = streams.add("compute"), &comm = streams.add("comm", StreamRole::comm);
  Event event;
  int sent = 0, seen = -1;
  comm.run("first", [&] { ++sent; });
  comm.record(event);
  compute.wait(event);
  comm.run("second", [&] { ++sent; });
  comm.record(event);
  compute.run("look", [&] { seen = sent; });
  compute.sync();
  CHECK(seen == 1);
}

TEST_CASE("synchronizing rethrows the exception of queued work") {
  StreamSet streams(Device::cpu(), {.order = StreamOrder::comm_early});
  Stream& stream = streams.add("compute");
  stream.run("work", [] { fail("token 5 is outside the vocabulary"); });
  CHECK(test::error_of([&] { stream.sync(); }) == "token 5 is outside the vocabulary");
}

TEST_CASE("a planning stream runs nothing") {
  StreamSet streams(Device::cpu(), {.planning = true});
  Stream& stream = streams.add("compute");
  bool ran = false;
  stream.run("work", [&] { ran = true; });
  stream.sync();
  CHECK_FALSE(ran);
}

TEST_CASE("streams on a missing GPU are an error that says how many there are") {
  const int count = cuda_device_count();
  CHECK(test::error_of([&] { StreamSet streams(Device::cuda(count)); }) ==
        str("device cuda:", count, " does not exist: this process can use ", count, " CUDA devices"));
}

TEST_CASE("a planning stream can plan for a missing GPU") {
  StreamSet streams(Device::cuda(0), {.planning = true});
  CHECK(streams.add("compute").device() == Device::cuda(0));
}

TEST_CASE("a communication stream with its own thread runs concurrently, and waiting for it is timed") {
  StreamSet streams(Device::cpu(), {.order = StreamOrder::concurrent});
  Stream &compute = streams.add("compute"), &comm = streams.add("comm", StreamRole::comm);
  std::atomic<bool> host_went_on{false};
  Event done;
  bool seen = false;
  comm.run("wait for the host", [&] {
    host_went_on.wait(false);
    seen = true;
  });
  comm.record(done);
  CHECK(streams.waited_seconds() == 0);
  host_went_on = true;
  host_went_on.notify_all();
  compute.wait(done);
  CHECK(seen);
}

TEST_CASE("an exception on a stream's thread reaches the waiter, and later work is skipped") {
  StreamSet streams(Device::cpu(), {.order = StreamOrder::concurrent});
  Stream& comm = streams.add("comm", StreamRole::comm);
  bool later = false;
  comm.run("fail", [] { fail("the cable is out"); });
  comm.run("later", [&] { later = true; });
  CHECK(test::error_of([&] { comm.sync(); }) == "the cable is out");
  CHECK(!later);
  comm.run("after", [&] { later = true; });
  comm.sync();
  CHECK(later);
}
