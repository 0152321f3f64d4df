// Properties of all ops, checked on every case of every op.

#include <algorithm>

#include "bench/case.h"
#include "build_config.h"
#include "kernels/parallel_write.h"
#include "tests/kernels/outputs.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;
using test::is_written;
using test::output_bytes;

namespace {

const std::vector<Case>& cases() {
  static const std::vector<Case> all = all_cases(Scale::test);
  return all;
}

struct ScopedThreads {
  explicit ScopedThreads(int count) : before(thread_count()) { set_thread_count(count); }
  ~ScopedThreads() { set_thread_count(before); }
  int before;
};

}  // namespace

TEST_CASE("every op matches its formula, and its gradients match numeric derivatives") {
  // The other tests run the same ops.
  if (*kSanitizer != '\0') return test::skip("numeric derivatives take half an hour under a sanitizer");
  for (const Case& c : cases()) {
    CAPTURE(label(c));
    CHECK(max_error(c) <= tolerance(c));
  }
}

TEST_CASE("every op gives the same bits on 1, 2 and 3 threads") {
  for (const Case& c : cases()) {
    CAPTURE(label(c));
    const auto run = [&](int threads) {
      const ScopedThreads scope(threads);
      return output_bytes(c);
    };
    const auto one = run(1);
    CHECK(run(2) == one);
    CHECK(run(3) == one);
  }
}

TEST_CASE("every op gives the same bits for any size of its work blocks") {
  for (const Case& c : cases()) {
    CAPTURE(label(c));
    const auto whole = output_bytes(c);
    for (const int64_t block : {1, 2, 5}) {
      const ScopedBlockLimit limit(block);
      CHECK(output_bytes(c) == whole);
    }
  }
}

TEST_CASE("every op gives the same bits with non-temporal stores") {
  for (const Case& c : cases()) {
    CAPTURE(label(c));
    const auto cached = output_bytes(c);
    const ScopedPastCachesBound bound(0);
    CHECK(output_bytes(c) == cached);
    CHECK(output_bytes(c, {.misalign = 36}) == cached);
  }
}

TEST_CASE("every op gives the same bits at aligned and unaligned arena offsets") {
  for (const Case& c : cases()) {
    CAPTURE(label(c));
    const auto aligned = output_bytes(c);
    for (const int64_t misalign : {4, 36, 64}) CHECK(output_bytes(c, {.misalign = misalign}) == aligned);
  }
}

TEST_CASE("every op gives the same bits when its work is delayed until the stream is synchronized") {
  for (const Case& c : cases()) {
    CAPTURE(label(c));
    CHECK(output_bytes(c, {.order = StreamOrder::comm_late}) == output_bytes(c));
  }
}

TEST_CASE("planning predicts the scratch of every op exactly") {
  for (const Case& c : cases()) {
    CAPTURE(label(c));
    Setup setup(c);
    Arena scratch("measured", Device::cpu());  // planning: only measures the requests
    StreamSet streams(Device::cpu(), {.planning = true});
    c.run(streams.add("compute"), scratch, setup.tensors());
    CHECK(scratch.peak() == setup.planned_scratch());
    CHECK(scratch.used() == 0);
    scratch.commit();
    c.run(setup.stream(), scratch, setup.tensors());
    CHECK(scratch.peak() == setup.planned_scratch());
  }
}

TEST_CASE("every op states its cost") {
  for (const Case& c : cases()) {
    CAPTURE(label(c));
    const Setup setup(c);
    const bool has_rows =
        std::all_of(c.args.begin(), c.args.end(), [](const Arg& arg) { return arg.shape.size() > 0; });
    CHECK(c.min_bytes(setup.tensors()) >= (has_rows ? 1 : 0));
    CHECK(c.flops(setup.tensors()) >= 0);
  }
}
