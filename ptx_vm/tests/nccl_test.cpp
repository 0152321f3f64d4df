// Calls of NCCL in graphs, on several ranks (nccl_ranks_cuda.cpp). Flatshard's tests of communicators test
// all other calls.

#include <string>

#include "runtime/check.h"
#include "tests/process.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

test::Finished run(const char* mode, int ranks, const std::string& order) {
  return test::run_command(
      str("PTX_VM_OWN_GPU=yes PTX_VM_ORDER=", order, ' ', test::launcher(ranks), "@ptx_vm_nccl_ranks ", mode),
      60);
}

void check_works(const char* mode, int ranks, const std::string& order) {
  CAPTURE(ranks);
  CAPTURE(order);
  const test::Finished finished = run(mode, ranks, order);
  CAPTURE(finished.output);
  CHECK(finished.exit_code == 0);
  CHECK(test::missing_from(finished.output, {str(mode, ": as expected on ", ranks, " ranks")}) == "");
}

}  // namespace

TEST_CASE("a captured collective runs at every launch, on the values that its buffers hold then") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  for (const char* order : {"in_order", "comm_late", "comm_early", "random"}) check_works("sums", 2, order);
  check_works("sums", 4, "comm_late");
}

// Orders in which the launch returns at once: in order, the call itself would wait for the other ranks.
TEST_CASE("the launch of a graph with a collective waits for those of the other ranks") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  for (const char* order : {"comm_late", "comm_early"}) check_works("unmatched", 2, order);
}

TEST_CASE("a call in a capture that is invalid is an error of CUDA") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  check_works("broken", 2, "in_order");
}

TEST_CASE("a communicator that is destroyed before a graph with its calls ends the program") {
  if (const std::string why = test::no_ranks_because(); !why.empty()) return test::skip(why);
  const test::Finished finished = run("early", 2, "in_order");
  CHECK(finished.exit_code != 0);
  CHECK(test::missing_from(finished.output, {"destroyed before the graphs with its calls"}) == "");
}
