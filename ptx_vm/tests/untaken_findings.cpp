// A test case that leaves a finding behind fails, in every test program that links this file.

#include "ptx_vm/ptx_vm.h"
#include "tests/test.h"

namespace flatshard::ptx_vm {
namespace {

// A finding makes every CUDA call fail until it is taken, and an error that a test case expects would be
// reported by the next launch. The next test case must run into neither.
const bool kTakesAtEnd = [] {
  test::at_end_of_tests([] {
    std::string all;
    for (const Finding& finding : take_findings()) all += finding.text + '\n';
    forget_last_error();
    return all;
  });
  return true;
}();

}  // namespace
}  // namespace flatshard::ptx_vm
