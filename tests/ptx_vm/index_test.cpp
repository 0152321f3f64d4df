// Numbers that only the device sees: a token, position or target outside its table, or documents that are not
// the tensor's rows, stop the kernel, so that nothing is read or written out of bounds.

#include <set>

#include "bench/kernels/attention_setting.h"
#include "kernels/attention_order.h"
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

// Each block then checks one document beside its own. A boundary in the middle is wrong: the document before
// it ends beyond the rows, or the one after it.
TEST_CASE("a wrong boundary among very many documents is found") {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const double number : {-1.0, 100000.0, 20.0}) {
      AttentionSetting s{
          .queries = std::vector<int64_t>(2 * cuda::BlockOrder::kMostSorted, 1), .Hq = 1, .Hkv = 1, .D = 64};
      const Case c = forward_case(dtype, s);
      Setup setup(c, {.device = Device::cuda(0)});
      std::vector<double> ends = setup.values("cu_seqlens");
      ends[ends.size() / 2] = number;
      setup.assign("cu_seqlens", ends);
      CHECK_THROWS_AS(setup.run(), Error);
      const std::vector<Finding> found = take_findings();
      REQUIRE(found.size() == 1);
      CHECK(found[0].kind == FindingKind::trap);
    }
}
