#include "runtime/stream.h"

#include <array>
#include <atomic>
#include <cmath>
#include <limits>

#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr int kUnits = 4, kSlots = 2, kSteps = 3;
constexpr double kStale = std::numeric_limits<double>::quiet_NaN();

// A sharded training loop in miniature: three streams, a ring of gather slots and one of gradient slots.
// Every record and wait is a numbered site that can be left out.
class SmallTrainer {
 public:
  static constexpr int kSites = 12;

  SmallTrainer(StreamOrder order, int left_out)
      : left_out_(left_out),
        streams_(Device::cpu(), {.order = order}),
        compute_(streams_.add("compute")),
        gather_(streams_.add("gather", StreamRole::comm)),
        reduce_(streams_.add("reduce", StreamRole::comm)) {
    for (int u = 0; u < kUnits; ++u) shard_[u] = 1.0 + 0.25 * u;
    slot_.fill(kStale);
    gradient_slot_.fill(kStale);
  }

  std::array<double, kUnits> train() {
    for (int step = 0; step < kSteps; ++step) {
      compute_.run("start", [this] { x_ = 1.0; });
      for (int u = 0; u < kUnits; ++u) forward_and_backward(u);
      wait(8, compute_, reduced_);
      compute_.run("update", [this] {
        for (int u = 0; u < kUnits; ++u) shard_[u] -= 0.01 * gradient_[u];
      });
      record(9, compute_, updated_);
    }
    wait(10, gather_, updated_);  // as a checkpoint would read the final shards
    gather_.run("read", [this] { result_ = shard_; });
    record(11, gather_, read_);
    compute_.wait(read_);
    compute_.run("use", [this] { used_ = result_; });
    compute_.sync();
    streams_.sync_all();
    return used_;
  }

 private:
  void forward_and_backward(int u) {
    const int s = u % kSlots;
    wait(0, gather_, slot_free_[s]);
    wait(10, gather_, updated_);
    gather_.run("gather", [this, u, s] { slot_[s] = shard_[u]; });
    record(1, gather_, gathered_[s]);

    wait(2, compute_, gathered_[s]);
    compute_.run("compute", [this, s] { x_ = x_ * slot_[s] + 0.5; });
    wait(3, compute_, gradient_free_[s]);
    compute_.run("gradient", [this, s] { gradient_slot_[s] = x_; });
    record(4, compute_, slot_free_[s]);
    record(5, compute_, gradient_ready_[s]);

    wait(6, reduce_, gradient_ready_[s]);
    reduce_.run("reduce", [this, u, s] {
      gradient_[u] = gradient_slot_[s];
      gradient_slot_[s] = kStale;
    });
    record(7, reduce_, gradient_free_[s]);
    record(7, reduce_, reduced_);
  }

  void record(int site, Stream& stream, Event& event) {
    if (site != left_out_) stream.record(event);
  }
  void wait(int site, Stream& stream, const Event& event) {
    if (site != left_out_) stream.wait(event);
  }

  int left_out_;
  StreamGroup streams_;
  Stream &compute_, &gather_, &reduce_;
  std::array<Event, kSlots> slot_free_, gathered_, gradient_free_, gradient_ready_;
  Event reduced_, updated_, read_;
  std::array<double, kUnits> shard_{}, gradient_{}, result_{}, used_{};
  std::array<double, kSlots> slot_{}, gradient_slot_{};
  double x_ = 0;
};

std::array<double, kUnits> train(StreamOrder order, int left_out = -1) {
  return SmallTrainer(order, left_out).train();
}

}  // namespace

TEST_CASE("a complete schedule gives the same bits in every stream order") {
  const auto expected = train(StreamOrder::in_order);
  CHECK(std::isfinite(expected[kUnits - 1]));
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

TEST_CASE("in_order runs work at the call, the late orders when the host synchronises") {
  for (const StreamOrder order : {StreamOrder::in_order, StreamOrder::comm_late, StreamOrder::comm_early}) {
    StreamGroup streams(Device::cpu(), {.order = order});
    Stream& stream = streams.add("compute");
    bool ran = false;
    stream.run("work", [&] { ran = true; });
    CHECK(ran == (order == StreamOrder::in_order));
    stream.sync();
    CHECK(ran);
  }
}

TEST_CASE("comm_late leaves communication that nobody waits for until its own stream is synchronised") {
  StreamGroup streams(Device::cpu(), {.order = StreamOrder::comm_late});
  Stream &compute = streams.add("compute"), &comm = streams.add("comm", StreamRole::comm);
  int done = 0;
  comm.run("send", [&] { ++done; });
  compute.sync();
  CHECK(done == 0);
  comm.sync();
  CHECK(done == 1);
}

TEST_CASE("a wait keeps the record it saw when the event is recorded again") {
  StreamGroup streams(Device::cpu(), {.order = StreamOrder::comm_late});
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

TEST_CASE("synchronising throws what held-back work threw") {
  StreamGroup streams(Device::cpu(), {.order = StreamOrder::comm_early});
  Stream& stream = streams.add("compute");
  stream.run("work", [] { fail("token 5 is outside the vocabulary"); });
  CHECK(test::error_of([&] { stream.sync(); }) == "token 5 is outside the vocabulary");
}

TEST_CASE("a planning stream runs nothing") {
  StreamGroup streams(Device::cpu(), {.planning = true});
  Stream& stream = streams.add("compute");
  bool ran = false;
  stream.run("work", [&] { ran = true; });
  stream.sync();
  CHECK_FALSE(ran);
}

TEST_CASE("streams on a GPU that is not there are an error that counts what is") {
  const int count = cuda_device_count();
  CHECK(test::error_of([&] { StreamGroup streams(Device::cuda(count)); }) ==
        str("there is no device cuda:", count, ": this process can use ", count, " CUDA devices"));
}

TEST_CASE("a planning stream plans for a GPU that is not there") {
  StreamGroup streams(Device::cuda(0), {.planning = true});
  CHECK(streams.add("compute").device() == Device::cuda(0));
}

TEST_CASE("a communication stream of its own thread works beside the host, and its wait is counted") {
  StreamGroup streams(Device::cpu(), {.order = StreamOrder::concurrent});
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

TEST_CASE("what fails on a thread of its own is thrown to whoever waits, and later work is left out") {
  StreamGroup streams(Device::cpu(), {.order = StreamOrder::concurrent});
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
