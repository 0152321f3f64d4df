// Features of CUDA C++ as nvcc compiles them: local arrays, dynamic shared memory, variables, parameters that
// are structs, device functions, the mathematical functions, barriers that count.

#include "ptx_vm/tests/language.h"

#include <cmath>

#include "ptx_vm/ptx_vm.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

TEST_CASE("CUDA C++ features give the expected results") {
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
