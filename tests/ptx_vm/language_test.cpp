// Features of CUDA C++ as nvcc compiles them: local arrays, dynamic shared memory, variables, parameters that
// are structs, the mathematical functions, barriers that count, fences between blocks, assertions.

#include "tests/ptx_vm/language.h"

#include <cmath>

#include "tests/ptx_vm/ptx_vm.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

TEST_CASE("CUDA C++ gives on the machine what the host expects") {
  const std::vector<LanguageCase> cases = run_language_cases();
  for (const Finding& finding : take_findings()) FAIL_CHECK(finding.text);
  for (const LanguageCase& c : cases) {
    CAPTURE(c.name);
    CHECK(c.results.size() == c.expected.size());
    for (size_t i = 0; i < c.results.size(); ++i) {
      CAPTURE(i);
      CHECK(std::abs(c.results[i] - c.expected[i]) <= c.tolerance * std::abs(c.expected[i]));
    }
  }
}

TEST_CASE("a failing assertion of a kernel is reported with its text and line") {
  run_failing_assertion();
  const std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  CHECK(found[0].kind == FindingKind::trap);
  CHECK(found[0].text.find("not this time") != std::string::npos);
  CHECK(found[0].where.find("language.cu:") != std::string::npos);
}
