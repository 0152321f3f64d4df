// Spans of a GPU's work. flatshard_tests runs these tests on a GPU, ptx_vm_tests on the PTX machine.

#include "runtime/kernel_spans.h"

#include <string>

#include "kernels/elementwise.h"
#include "runtime/graph.h"
#include "runtime/memory.h"
#include "runtime/stream.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

constexpr int64_t kSize = 1000;

struct Traced {
  Trace trace{};
  StreamSet streams{Device::cuda(0), {.trace = &trace}};
  Stream &compute = streams.add("compute"), &gather = streams.add("gather", StreamRole::comm);
  Memory memory{Device::cuda(0), 2 * kSize * 4};
  Tensor x{memory.data(), DType::f32, {kSize}, memory.device()},
      y{static_cast<float*>(memory.data()) + kSize, DType::f32, {kSize}, memory.device()};

  // Names of the spans of a row, in their order. Waits may be too short for one.
  std::string names(const std::string& of) const {
    std::string text;
    trace.each_span([&](const std::string& row, const std::string& name, const auto& begin, const auto& end) {
      CHECK(begin <= end);
      if (row == of && name != "wait") text += name + ' ';
    });
    return text;
  }
};

}  // namespace

TEST_CASE("a trace has the ops of a GPU's streams, each between its scope's begin and end" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  Traced t;
  Event filled, copied;
  bool host_ran = false;
  {
    const TraceSpan span = t.compute.span("forward", 3);
    zero(t.compute, t.x);
    add(t.compute, {.y = t.y, .a = t.x, .b = t.x});
  }
  t.compute.record(filled);
  t.gather.wait(filled);
  copy(t.gather, t.x, t.y);
  t.gather.record(copied);
  t.compute.wait(copied);
  t.compute.host_side().run("update", [&] { host_ran = true; });
  t.streams.sync_all();
  CHECK(host_ran);
  CHECK(t.trace.span_count() == 0);  // they are read at collect()
  t.trace.collect();
  CHECK(t.names("compute") == "fill add forward 3 update ");
  CHECK(t.names("gather") == "copy ");
  std::string ops;  // with their elements, or bytes of fills and copies
  t.trace.each_op([&](const OpCall& op, Trace::Clock::duration duration) {
    CHECK(duration >= Trace::Clock::duration::zero());
    ops += str(op.name, ' ', op.shape[0], ' ');
  });
  CHECK(ops == "fill 4000 add 1000 copy 4000 ");
  Trace::Clock::time_point first, last;
  t.trace.each_span([&](const std::string&, const std::string& name, const auto& begin, const auto& end) {
    CHECK(begin >= t.trace.start());
    if (name == "fill") first = begin;
    if (name == "add") last = end;
    if (name != "forward 3") return;
    CHECK(begin <= first);
    CHECK(end >= last);
  });
  t.trace.collect();
  CHECK(t.names("gather") == "copy ");  // none twice
}

TEST_CASE("the work of a GPU has no spans while a trace does not record, nor in a graph" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0) return test::skip("no GPU");
  Traced t;
  t.trace.set_recording(false);
  zero(t.compute, t.x);
  t.trace.set_recording(true);
  Graph graph(t.streams, [&] {
    const TraceSpan span = t.compute.span("forward", 0);
    zero(t.compute, t.y);
  });
  graph.launch();
  copy(t.compute, t.x, t.y);
  t.streams.sync_all();
  t.trace.collect();
  CHECK(t.names("compute") == "copy ");
}
