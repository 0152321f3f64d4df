// Numbers that only the device sees: a token, position or target outside its table, or documents that are not
// the tensor's rows, stop the kernel, so that nothing is read or written out of bounds.

#include <set>

#include "bench/case.h"
#include "ptx_vm/ptx_vm.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;
using namespace flatshard::ptx_vm;

namespace {

// Runs the case with one number of the argument replaced, and returns the finding.
std::vector<Finding> found_with(const Case& c, const std::string& argument, double number) {
  Setup setup(c, {.device = Device::cuda(0)});
  std::vector<double> numbers = setup.values(argument);
  numbers.back() = number;
  setup.assign(argument, numbers);
  CHECK_THROWS_AS(setup.run(), Error);
  return take_findings();
}

}  // namespace

TEST_CASE("an index outside its table is found") {
  for (const Case& c : all_cases(Scale::golden)) {
    if (!c.has_cuda_kernel || c.dtype != DType::f32) continue;
    for (const Arg& arg : c.args) {
      static const std::set<std::string> kIndices{"tokens", "positions", "targets", "cu_seqlens", "index"};
      const bool ignored = arg.name == "targets" || arg.name == "index";
      if (!kIndices.contains(arg.name)) continue;
      CAPTURE(label(c));
      CAPTURE(arg.name);
      for (const double number : {-1.0, 100000.0}) {
        if (number < 0 && ignored) continue;  // a negative one names nothing
        const std::vector<Finding> found = found_with(c, arg.name, number);
        REQUIRE(found.size() == 1);
        CHECK(found[0].kind == FindingKind::trap);
      }
    }
  }
}
