// What becomes of findings that a test does not take.

#include <string>

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/stream_samples.h"
#include "tests/process.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

// Two test cases for the one below, which runs them in a process of their own.
TEST_CASE("left behind: a finding that nobody takes" * doctest::skip()) {
  broken_stream_samples().front().run();
}
TEST_CASE("left behind: the next test case" * doctest::skip()) {
  for (const StreamSample& sample : correct_stream_samples()) CHECK(!sample.run().empty());
}

TEST_CASE("a finding that is left behind fails its own test case, and the next ones run") {
  const test::Finished run = test::run_command("@ptx_vm_selftest 'left behind: ' --no-skip");
  CAPTURE(run.output);
  CHECK(run.exit_code == 1);
  CHECK(run.output.find("FAILED: left behind: a finding that nobody takes: ") != std::string::npos);
  CHECK(run.output.find("1 passed, 1 failed, 0 skipped") != std::string::npos);
}
