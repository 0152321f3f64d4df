// Costs of kernels equal manual counts.

#include "ptx_vm/counts.h"

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/run_ptx.h"
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
