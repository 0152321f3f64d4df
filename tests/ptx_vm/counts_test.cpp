// Costs of kernels: equal to manual counts, and for the project's kernels to the declared ones.

#include "tests/ptx_vm/counts.h"

#include "bench/case.h"
#include "runtime/memory.h"
#include "tests/ptx_vm/ptx_vm.h"
#include "tests/ptx_vm/run_ptx.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

Counts counts_of(const std::string& body) {
  return ptx_vm::counts_of([&] { run_ptx(body); });
}

// Each lane stores in the given form to tile + %r1.
OpCounts store_at(const std::string& address, const std::string& form) {
  return counts_of(address + "mov.u32 %r2, tile; add.u32 %r1, %r1, %r2; mov.u32 %r3, 7;" + form).total();
}

}  // namespace

TEST_CASE("bank cycles of shared memory are counted for 4-, 8- and 16-byte accesses") {
  const std::string word = "st.shared.u32 [%r1], %r3;";
  const std::string pair = "st.shared.v2.u32 [%r1], {%r3, %r3};";
  const std::string four = "st.shared.v4.u32 [%r1], {%r3, %r3, %r3, %r3};";
  struct Expected {
    std::string address, form;
    uint64_t waves, least;
  };
  for (const Expected& e : {
           Expected{"shl.b32 %r1, %r30, 2;", word, 1, 1},  // lanes side by side
           Expected{"shl.b32 %r1, %r30, 3;", word, 2, 1},  // every second word: two lanes to a bank
           Expected{"shl.b32 %r1, %r30, 4;", word, 4, 1},  // every fourth
           Expected{"shl.b32 %r1, %r30, 3;", pair, 2, 2},  // two half warps
           Expected{"and.b32 %r1, %r30, 15; shl.b32 %r1, %r1, 4;", pair, 4,
                    2},                                    // 16 bytes apart, each half twice 2
           Expected{"shl.b32 %r1, %r30, 4;", four, 4, 4},  // four groups of eight lanes
           Expected{"shl.b32 %r1, %r30, 5; and.b32 %r1, %r1, 1023;", four, 8, 4},  // 32 bytes apart
       }) {
    CAPTURE(e.address);
    CAPTURE(e.form);
    const OpCounts got = store_at(e.address, e.form);
    CHECK(got.waves == e.waves);
    CHECK(got.least_waves == e.least);
  }
  // One word for all lanes is one cycle.
  const OpCounts same = store_at("mov.u32 %r1, 0;",
                                 "setp.eq.u32 %p1, %r30, 0; @%p1 st.shared.u32 [%r1], %r1; "
                                 "bar.warp.sync -1; ld.shared.u32 %r3, [%r1];");
  CHECK(same.waves == 2);
  CHECK(same.least_waves == 2);
}

TEST_CASE("sectors, requested bytes and touched bytes are counted for global memory") {
  // run_ptx itself stores 8 bytes of each lane side by side: 8 sectors, 256 bytes, one request.
  const std::string to_out = "ld.param.u64 %rd1, [out];";
  Counts counts = counts_of(to_out);
  CHECK(counts.total().requests == 1);
  CHECK(counts.total().sectors == 8);
  CHECK(counts.total().least_sectors == 8);
  CHECK(counts.requested_bytes() == 256);
  CHECK(counts.touched_bytes() == 256);
  // One word of each of the 8 sectors by 8 lanes, twice: 16 sectors where 1 would do each time.
  counts = counts_of(to_out +
                     "setp.lt.u32 %p1, %r30, 8; mul.wide.u32 %rd2, %r30, 32; add.s64 %rd1, %rd1, %rd2;"
                     "@%p1 st.global.u32 [%rd1], %r30; @%p1 st.global.u32 [%rd1], %r30; bar.sync 0;");
  CHECK(counts.total().requests == 3);
  CHECK(counts.total().sectors == 8 + 16);
  CHECK(counts.total().least_sectors == 8 + 2);
  CHECK(counts.requested_bytes() == 256 + 64);
  CHECK(counts.touched_bytes() == 256);
  // Four lanes copy 16 bytes each, side by side: two sectors.
  counts = counts_of(R"(
    mov.u64 %rd1, source; mad.wide.u32 %rd1, %r30, 16, %rd1;
    mov.u32 %r1, tile; mad.lo.u32 %r1, %r30, 16, %r1;
    setp.lt.u32 %p1, %r30, 4;
    @%p1 cp.async.cg.shared.global [%r1], [%rd1], 16;
    cp.async.wait_all;)");
  CHECK(counts.total().sectors == 8 + 2);
  CHECK(counts.touched_bytes() == 256 + 64);
}

TEST_CASE("copies and fills count as launches, with the device memory that they access") {
  const Device device = Device::cuda(0);
  const Memory a(device, 256), b(device, 256);
  const Tensor on_device{a.data(), DType::u8, {256}, device}, other{b.data(), DType::u8, {256}, device};
  std::vector<float> on_host(64);
  StreamGroup streams(device);
  Stream& stream = streams.add("compute");
  const Counts counts = ptx_vm::counts_of([&] {
    zero(stream, on_device);
    copy(stream, other, on_device);
    copy(stream, tensor_of(on_host.data(), {64}), Tensor{b.data(), DType::f32, {64}, device});
    stream.sync();
  });
  CHECK(counts.copies() == 3);
  CHECK(counts.launches() == 3);
  CHECK(counts.launch_bytes() == 256 + 512 + 256);
  CHECK(counts.touched_bytes() == 0);  // by kernels
}

TEST_CASE("instructions are counted by opcode, once per group of lanes that executes them") {
  const Counts counts = counts_of(R"(
  ex2.approx.f32 %f1, 0f3f800000;
  setp.lt.u32 %p1, %r30, 5;
  @%p1 bra few;
  ex2.approx.f32 %f1, %f1;
few:
  ex2.approx.f32 %f1, %f1;)");
  REQUIRE(counts.kernels().size() == 1);
  const KernelCounts& kernel = counts.kernels()[0];
  CHECK(kernel.launches == 1);
  CHECK(kernel.blocks == 1);
  CHECK(kernel.by_opcode().at("ex2.approx.f32") == 3);
  CHECK(kernel.by_opcode().at("bra") == 1);
  CHECK(kernel.tensor_flops() == 0);
}

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
