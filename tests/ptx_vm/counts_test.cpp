// The project's kernels have the costs that they declare.

#include "ptx_vm/counts.h"

#include "bench/case.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

// Factors over the least that a case may have.
struct Limits {
  double bytes = 1.05;  // the declared bytes exclude partial sums between two kernels
  double sectors = 1.05, waves = 1;
};

Limits limits_of(const bench::Case& c) {
  const bool embedding = c.op.starts_with("embedding"), norm = c.op.find("norm_") != std::string::npos;
  // Rows of 8 elements are half a sector, and sorting their tokens moves about as much as they do.
  if (embedding && c.shape.starts_with("65536 x 8 ")) return {.bytes = 1.45, .sectors = 1.5, .waves = 1.05};
  if (embedding) return {.waves = 1.05};  // digits are counted in shared memory
  // A pack of 8 elements takes two reads of 16 bytes from the table, which is fp32.
  if (c.op.starts_with("qk_norm")) return {.bytes = 1.15, .sectors = 1.2, .waves = 1.06};
  // The two packs of a thread lie side by side: each access takes half of its sectors, the caches join them.
  if (c.shape.ends_with(" in pairs")) return {.sectors = 2};
  // Rows of 72 elements are four and a half sectors, whose halves two heads share.
  if (c.op.starts_with("attention") && c.shape.find(" x 72 ") != std::string::npos) return {.sectors = 1.2};
  if (c.op == "bias_backward") return {.bytes = 1.07};
  if (norm)
    return {.bytes = 1.15, .sectors = 1.06};  // a block has at least 16 rows for its partial row of dw
  return {};
}

}  // namespace

TEST_CASE("CUDA kernels move the bytes they declare once, in full sectors, without bank conflicts") {
  for (const bench::Case& c : bench::all_cases(bench::Scale::vm)) {
    if (!c.has_cuda_kernel) continue;
    CAPTURE(bench::label(c));
    bench::Setup setup(c, {.device = Device::cuda(0)});
    const Counts counts = ptx_vm::counts_of([&] { setup.run(); });
    const double least = c.min_bytes(setup.tensors());
    const OpCounts total = counts.total();
    const Limits limits = limits_of(c);
    CHECK(static_cast<double>(counts.touched_bytes()) >= least);
    CHECK(static_cast<double>(counts.touched_bytes()) <= limits.bytes * least);
    CHECK(total.sectors <= limits.sectors * static_cast<double>(total.least_sectors));
    CHECK(static_cast<double>(total.waves) <= limits.waves * static_cast<double>(total.least_waves));
  }
}
