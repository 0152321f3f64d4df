// What becomes of findings that a test or a program does not take, and the options of the environment.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

#include <cuda_runtime_api.h>

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/samples.h"
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

namespace {

// Runs the broken sample of this name.
void run_broken(const std::string& name) {
  const std::vector<Sample> samples = broken_samples();
  const auto sample =
      std::find_if(samples.begin(), samples.end(), [&](const Sample& s) { return s.name == name; });
  REQUIRE(sample != samples.end());
  sample->run();
}

// The output of the test case, in a process of its own.
std::string output_of(const std::string& environment, const std::string& name) {
  return test::run_command("TMPDIR=. " + environment + " @ptx_vm_selftest '" + name + "' --no-skip").output;
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++n;
  return n;
}

}  // namespace

// For the test cases below. The first two end their program, as one of a user's may end.
TEST_CASE("ends here: without a look at the error" * doctest::skip()) {
  run_broken("no_second_barrier");
  std::exit(0);
}
TEST_CASE("ends here: after printing the error" * doctest::skip()) {
  run_broken("no_second_barrier");
  std::printf("%s\n", cudaGetErrorString(cudaGetLastError()));
  std::exit(0);
}
TEST_CASE("adds floats: in every block" * doctest::skip()) {
  run_broken("float_atomics");
  for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
}

TEST_CASE("a program that checks no error prints its finding when it exits, another one does not repeat it") {
  const std::string finding = "race in shared memory: ";
  CHECK(count(output_of("", "ends here: without a look"), finding) == 1);
  CHECK(count(output_of("", "ends here: after printing"), finding) == 1);
}

TEST_CASE("PTX_VM_FLOAT_ATOMICS permits float atomics to the kernels that it names") {
  const auto permits = [](const std::string& kernels) {
    const std::string output = output_of("PTX_VM_FLOAT_ATOMICS='" + kernels + "'", "adds floats: ");
    CAPTURE(output);
    const bool passed = output.find("1 passed, 0 failed") != output.npos;
    CHECK(passed == (output.find("float atomic: ") == output.npos));
    return passed;
  };
  CHECK(permits("column_sums"));
  CHECK(permits("other,column"));
  CHECK(permits("*"));
  CHECK(!permits("other"));
}
