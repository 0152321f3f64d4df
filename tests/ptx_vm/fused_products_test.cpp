// The project's kernels decide themselves which products and sums are fused.

#include <string>

#include "ptx_vm/registry.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

TEST_CASE("no kernel leaves it to the compiler whether a product and a sum are fused") {
  // Without a rounding mode, the compiler of PTX may fuse "mul.f32" with "add.f32".
  for (const LoadedKernel& kernel : load_everything()) {
    if (kernel.name.find("flatshard::cuda::") == kernel.name.npos) continue;  // a sample
    for (const std::string& form : kernel.forms) {
      CAPTURE(kernel.name);
      CAPTURE(form);
      const bool is_sum = form.starts_with("add.") || form.starts_with("sub.") || form.starts_with("mul.") ||
                          form.starts_with("mad.");
      const bool is_float = form.find(".f") != form.npos || form.find(".bf") != form.npos;
      if (is_sum && is_float) CHECK(form.find(".r") != form.npos);
    }
  }
}
