// The stopwatch. flatshard_tests runs the CUDA part on a GPU, ptx_vm_tests on the PTX machine, whose clock
// counts instructions and bytes.

#include "runtime/stopwatch.h"

#include "runtime/memory.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a stopwatch on the CPU stops when the work is done, in every order of streams") {
  for (const StreamOrder order : {StreamOrder::in_order, StreamOrder::comm_late, StreamOrder::comm_early}) {
    StreamSet streams(Device::cpu(), {.order = order});
    Stream& stream = streams.add("compute");
    Stopwatch watch(stream);
    bool before = false, between = false;
    stream.run("before", [&] { before = true; });
    watch.start();
    CHECK(before);
    stream.run("between", [&] { between = true; });
    watch.stop();
    CHECK(between);
    CHECK(watch.seconds() >= Stopwatch::kTick);
  }
}

TEST_CASE("a stopwatch on a GPU times the work in between, repeatedly" * doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  constexpr int64_t kBytes = 1 << 22;
  StreamSet streams(Device::cuda(0));
  Stream& stream = streams.add("compute");
  const Memory a(Device::cuda(0), kBytes), b(Device::cuda(0), kBytes);
  Stopwatch watch(stream);
  const auto seconds_of_copies = [&](int64_t count) {
    const Shape shape{kBytes};
    zero(stream, {a.data(), DType::u8, shape, a.device()});
    watch.start();
    for (int64_t i = 0; i < count; ++i)
      copy(stream, {b.data(), DType::u8, shape, b.device()}, {a.data(), DType::u8, shape, a.device()});
    watch.stop();
    return watch.seconds();
  };
  const double one = seconds_of_copies(1);
  CHECK(one >= Stopwatch::kTick);
  CHECK(seconds_of_copies(100) > one);
}
