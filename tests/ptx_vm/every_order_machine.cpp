#include "ptx_vm/counts.h"
#include "ptx_vm/ptx_vm.h"
#include "tests/ptx_vm/every_order.h"
#include "tests/test.h"

namespace flatshard::ptx_vm {
namespace {

// Each schedule with 1, 2, 3 and the maximal number of resident blocks.
constexpr int kSchedules = 4, kOrders = 4 * kSchedules;

void run_with(const Options& now, const std::function<void()>& body) {
  const ScopedOptions scope(now);
  CAPTURE(describe(now));
  body();
  for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
}

}  // namespace

void for_every_order(const std::function<void()>& body) {
  for (int which = 0; which < kOrders; ++which) in_some_order(which, body);
}

void in_some_order(int which, const std::function<void()>& body) {
  const int number = which % kOrders;
  const auto resident = static_cast<uint32_t>((number / kSchedules + 1) % 4);
  run_with({.schedule = static_cast<Schedule>(number % kSchedules),
            .seed = resident + 1,
            .resident_blocks = resident,
            .async = static_cast<AsyncTiming>((number + 1) % 3)},
           body);
}

void for_every_order_of_sums(const std::function<void()>& body) {
  for (const bool in_pairs : {false, true}) {
    Options now = options();
    now.pairwise_mma = in_pairs;
    run_with(now, body);
  }
}

void expect_no_bank_conflicts(const std::function<void()>& body) {
  const OpCounts total = counts_of([&] { run_with(options(), body); }).total();
  CHECK(total.least_waves > 0);
  CHECK(total.waves == total.least_waves);
}

}  // namespace flatshard::ptx_vm
