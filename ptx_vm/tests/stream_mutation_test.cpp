// Correct programs of two streams have no findings and the same bits in every order of streams; mutations of
// them are found in every order, and the report names both operations.

#include <algorithm>

#include "ptx_vm/tests/stream_samples.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

std::vector<Options> orders() {
  std::vector<Options> all;
  for (const WorkOrder order : {WorkOrder::in_order, WorkOrder::comm_late, WorkOrder::comm_early})
    all.push_back({.stream_order = order});
  for (const uint64_t seed : {1, 2, 3, 4, 5})
    all.push_back({.seed = seed, .stream_order = WorkOrder::random});
  return all;
}

void check_found(const StreamSample& sample, const Options& order) {
  const ScopedOptions scope(order);
  CAPTURE(sample.name);
  CAPTURE(describe(order));
  sample.run();
  const std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  CAPTURE(found[0].text);
  CHECK(std::find(sample.finds.begin(), sample.finds.end(), found[0].kind) != sample.finds.end());
  for (const std::string& name : sample.names) CHECK(found[0].text.find(name) != std::string::npos);
  CHECK(found[0].text.find(describe(order)) != std::string::npos);
}

}  // namespace

TEST_CASE("correct stream programs give the same bits in every order, without findings") {
  for (const StreamSample& sample : correct_stream_samples()) {
    CAPTURE(sample.name);
    const std::vector<float> expected = sample.run();
    CHECK(!expected.empty());
    for (const Options& order : orders()) {
      const ScopedOptions scope(order);
      CAPTURE(describe(order));
      CHECK(sample.run() == expected);
      for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
    }
  }
}

TEST_CASE("a broken stream program is found in every order, with the operations involved") {
  for (const StreamSample& sample : broken_stream_samples())
    for (const Options& order : orders()) check_found(sample, order);
}

TEST_CASE("a kernel that waits for another stream's kernel without an event is reported as a hang") {
  check_found(sample_that_needs_two_streams_at_once(), {});
  check_found(sample_that_needs_two_streams_at_once(), {.stream_order = WorkOrder::comm_late});
}
