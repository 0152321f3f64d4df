// Streams and memory of a CUDA device. flatshard_tests runs these tests on a GPU, ptx_vm_tests on the PTX
// machine.

#include <algorithm>
#include <cmath>
#include <numeric>

#include "runtime/graph.h"
#include "runtime/memory.h"
#include "tests/runtime/small_trainer.h"
#include "tests/test.h"

using namespace flatshard;
using test::SmallTrainer;

namespace {

constexpr int64_t kSize = 1000;
const Shape kShape{kSize};

std::vector<float> counted() {
  std::vector<float> values(kSize);
  std::iota(values.begin(), values.end(), 1.0f);
  return values;
}

Tensor on(const Memory& memory) { return {memory.data(), DType::f32, kShape, memory.device()}; }

}  // namespace

TEST_CASE("a CUDA stream copies to, within and from the device, and zeroes, in order" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  StreamSet streams(Device::cuda(0));
  Stream& stream = streams.add("compute");
  const Memory a(Device::cuda(0), kSize * 4), b(Device::cuda(0), kSize * 4);
  const Memory pinned(Device::cpu(), kSize * 4, Placement::pinned);
  std::vector<float> values = counted(), result(kSize, -1.0f);
  copy(stream, on(a), tensor_of(values.data(), kShape));
  copy(stream, on(b), on(a));
  zero(stream, on(a));
  copy(stream, on(pinned), on(b));
  copy(stream, tensor_of(result.data(), kShape), on(a));
  stream.sync();
  CHECK(std::equal(values.begin(), values.end(), on(pinned).as<float>()));
  CHECK(result == std::vector<float>(kSize, 0.0f));
}

TEST_CASE("host work of a CUDA stream runs in stream order" * doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  StreamSet streams(Device::cuda(0));
  Stream &compute = streams.add("compute"), &comm = streams.add("comm", StreamRole::comm);
  const Memory device(Device::cuda(0), kSize * 4);
  const Memory in(Device::cpu(), kSize * 4, Placement::pinned),
      out(Device::cpu(), kSize * 4, Placement::pinned);
  Event filled, copied;
  compute.host_side().run("fill", [&] { std::iota(on(in).as<float>(), on(in).as<float>() + kSize, 1.0f); });
  compute.record(filled);
  comm.wait(filled);
  copy(comm, on(device), on(in));
  comm.record(copied);
  compute.wait(copied);
  copy(compute, on(out), on(device));
  float sum = 0;
  compute.host_side().run("sum", [&] {
    const float* values = on(out).as<float>();
    sum = std::accumulate(values, values + kSize, 0.0f);
  });
  compute.sync();
  CHECK(sum == kSize * (kSize + 1) / 2);
}

TEST_CASE("a sharded step on CUDA streams gives the same bits every time, near those of the CPU" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  constexpr float kTolerance = 1e-5f;  // sums of 64 terms in another order, over a few optimizer steps
  const auto train = [](Device device) { return SmallTrainer(device, {}, SmallTrainer::kNone).train(); };
  const std::vector<float> expected = train(Device::cpu()), first = train(Device::cuda(0));
  for (size_t i = 0; i < expected.size(); ++i)
    CHECK(std::abs(first[i] - expected[i]) <= kTolerance * expected[i]);
  for (int repetition = 0; repetition < 5; ++repetition) CHECK(train(Device::cuda(0)) == first);
}

TEST_CASE("more memory than a GPU has is an error that says how much is free" * doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  CHECK(test::error_of([] {
          const Memory all(Device::cuda(0), int64_t{1} << 50);
        }).find("out of memory on cuda:0: cannot allocate 1125899906842624 bytes") != std::string::npos);
}

TEST_CASE("a graph repeats what it captured, ordered with the earlier and later work of its streams" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  StreamSet streams(Device::cuda(0));
  Stream &compute = streams.add("compute"), &comm = streams.add("comm", StreamRole::comm);
  const Memory a(Device::cuda(0), kSize * 4), b(Device::cuda(0), kSize * 4), c(Device::cuda(0), kSize * 4);
  const Memory in(Device::cpu(), kSize * 4, Placement::pinned),
      out(Device::cpu(), kSize * 4, Placement::pinned);
  Event before, ready, copied;
  comm.record(before);
  Graph graph(streams, [&] {
    compute.wait(before);  // recorded outside the graph, which runs after it anyway
    compute.record(ready);
    comm.wait(ready);
    copy(comm, on(b), on(a));
    comm.record(copied);
    compute.wait(copied);
    copy(compute, on(c), on(b));
  });
  for (const float factor : {1.0f, 2.0f}) {
    std::vector<float> values = counted();
    for (float& v : values) v *= factor;
    std::copy(values.begin(), values.end(), on(in).as<float>());
    copy(comm, on(a), on(in));
    graph.launch();
    comm.wait(copied);  // recorded inside the graph; comm runs after the graph anyway
    copy(comm, on(out), on(c));
    comm.sync();
    CHECK(std::equal(values.begin(), values.end(), on(out).as<float>()));
  }
}

TEST_CASE("capturing unsupported work is an error, after which the streams still work" *
          doctest::test_suite("gpu")) {
  CHECK(test::error_of([] {
          StreamSet streams(Device::cpu());
          streams.add("compute");
          Graph(streams, [] {});
        }) == "a graph on cpu: only CUDA devices support graphs");
  if (cuda_device_count() == 0) return test::skip("no GPU");
  StreamSet streams(Device::cuda(0));
  Stream& compute = streams.add("compute");
  const Memory a(Device::cuda(0), kSize * 4);
  const std::string error =
      test::error_of([&] { Graph(streams, [&] { compute.host_side().run("a sum", [] {}); }); });
  CHECK(error == "a sum runs on the host and cannot be captured in a graph");
  std::vector<float> values = counted(), result(kSize, -1.0f);
  copy(compute, on(a), tensor_of(values.data(), kShape));
  copy(compute, tensor_of(result.data(), kShape), on(a));
  compute.sync();
  CHECK(result == values);
}
