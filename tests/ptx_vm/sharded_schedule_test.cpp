// The streams of a sharded step on the machine: the trainer's own streams, copies and kernels, each wait and
// record left out in turn.

#include <cmath>

#include "ptx_vm/ptx_vm.h"
#include "tests/runtime/small_trainer.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;
using test::SmallTrainer;

namespace {

std::vector<float> train(const Options& options, int left_out = SmallTrainer::kNone) {
  const ScopedOptions scope(options);
  return SmallTrainer(Device::cuda(0), {}, left_out).train();
}

constexpr WorkOrder kOrders[] = {WorkOrder::in_order, WorkOrder::comm_late, WorkOrder::comm_early,
                                 WorkOrder::random};

}  // namespace

TEST_CASE("a complete schedule gives the same bits in every stream order, without findings") {
  const std::vector<float> expected = train({});
  for (const float value : expected) CHECK(std::isfinite(value));
  for (const WorkOrder order : kOrders)
    for (const uint64_t seed : {1, 2, 3}) {
      CHECK(train({.seed = seed, .stream_order = order}) == expected);
      for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
    }
}

TEST_CASE("a missing wait or record changes bits in comm_late or comm_early, never in in_order") {
  const std::vector<float> expected = train({});
  for (int site = 0; site < SmallTrainer::kSites; ++site) {
    CAPTURE(site);
    const auto differs = [&](WorkOrder order) {
      return train({.finds_races = false, .stream_order = order}, site) != expected;
    };
    CHECK_FALSE(differs(WorkOrder::in_order));
    const bool caught = differs(WorkOrder::comm_late) || differs(WorkOrder::comm_early);
    CHECK(caught);
    CHECK(take_findings().empty());
  }
}

TEST_CASE("a missing wait or record is a race between two streams in every order") {
  for (int site = 0; site < SmallTrainer::kSites; ++site)
    for (const WorkOrder order : kOrders) {
      CAPTURE(site);
      const Options options{.stream_order = order};
      CAPTURE(describe(options));
      CHECK_THROWS_AS(train(options, site), Error);
      const std::vector<Finding> found = take_findings();
      REQUIRE(found.size() == 1);
      CAPTURE(found[0].text);
      CHECK(found[0].kind == FindingKind::stream_race);
      // Both operations, with their streams.
      CHECK(found[0].text.find("(comm)") != std::string::npos);
      CHECK(found[0].text.find("(compute)") != std::string::npos);
    }
}
