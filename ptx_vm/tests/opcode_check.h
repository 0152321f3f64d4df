#pragma once
// Checks of a few lines of PTX against expected results.

#include <string>
#include <vector>

#include "ptx_vm/tests/run_ptx.h"
#include "tests/test.h"

namespace flatshard::ptx_vm {

struct Form {
  const char* body;
  uint64_t expected;  // the result of every lane
};

inline void check_forms(const std::vector<Form>& forms) {
  for (const Form& form : forms) {
    const std::string body = form.body;
    CAPTURE(body);
    for (const uint64_t result : run_ptx(body)) {
      CAPTURE(result);
      CAPTURE(form.expected);
      REQUIRE(result == form.expected);
    }
  }
}

// Each of 32 lanes must have the result expected(lane).
template <class Expected>
void check_lanes(const std::string& body, Expected&& expected) {
  CAPTURE(body);
  const std::vector<uint64_t> results = run_ptx(body);
  for (uint64_t lane = 0; lane < 32; ++lane) {
    CAPTURE(lane);
    CHECK(results[lane] == static_cast<uint64_t>(expected(lane)));
  }
}

}  // namespace flatshard::ptx_vm
