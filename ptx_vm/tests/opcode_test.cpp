// Instructions against results worked out by hand: special values, edge lanes, roundings.

#include <set>

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/registry.h"
#include "ptx_vm/tests/opcode_check.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

TEST_CASE("integer arithmetic wraps, widens and divides as the GPU does") {
  check_forms({
      {"add.s32 %r0, 0x7fffffff, 1;", 0x80000000},
      {"sub.u32 %r0, 0, 1;", 0xffffffff},
      {"mul.lo.s32 %r0, 0x10001, 0x10001;", 0x20001},
      {"mul.hi.u32 %r0, 0xffffffff, 0xffffffff;", 0xfffffffe},
      {"mul.hi.s32 %r0, -1, 1;", 0xffffffff},
      {"mul.wide.s32 %rd0, -2, 3;", 0xfffffffffffffffa},
      {"mul.wide.u32 %rd0, 0xffffffff, 2;", 0x1fffffffe},
      {"mul.hi.u64 %rd0, 0xffffffffffffffff, 4;", 3},
      {"mov.u64 %rd1, 5; mad.wide.u32 %rd0, 7, 6, %rd1;", 47},
      {"mad.lo.s32 %r0, 7, -6, 1;", 0xffffffd7},
      {"div.s32 %r0, -7, 2;", 0xfffffffd},
      {"rem.s32 %r0, -7, 2;", 0xffffffff},
      {"div.s32 %r0, 0x80000000, -1;", 0x80000000},
      {"div.u32 %r0, 5, 0;", 0xffffffff},
      {"min.s32 %r0, -1, 1;", 0xffffffff},
      {"min.u32 %r0, -1, 1;", 1},
      {"max.s64 %rd0, -1, 1;", 1},
      {"max.u64 %rd0, -1, 1;", 0xffffffffffffffff},
      {"mov.u16 %rs1, 0x7fff; add.s16 %rs0, %rs1, 1; cvt.u32.u16 %r0, %rs0;", 0x8000},
      {"neg.s32 %r0, 5;", 0xfffffffb},
      {"abs.s32 %r0, -5;", 5},
  });
}

TEST_CASE("bits are shifted, permuted, counted and combined as the tables say") {
  check_forms({
      {"prmt.b32 %r0, 0x03020100, 0x07060504, 0x7531;", 0x07050301},
      {"prmt.b32 %r0, 0x00008000, 0, 0x4449;", 0x000000ff},
      {"lop3.b32 %r0, 0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA, 0x96;", 0x96969696},
      {"lop3.b32 %r0, 0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA, 0xE8;", 0xE8E8E8E8},
      {"shf.l.wrap.b32 %r0, 0x80000000, 1, 1;", 3},
      {"shf.r.clamp.b32 %r0, 1, 0x12345678, 40;", 0x12345678},
      {"shl.b32 %r0, 1, 31;", 0x80000000},
      {"shl.b32 %r0, 1, 32;", 0},
      {"shr.s32 %r0, 0x80000000, 40;", 0xffffffff},
      {"shr.u32 %r0, 0x80000000, 31;", 1},
      {"mov.u16 %rs1, 0x8000; shr.u16 %rs0, %rs1, 15; cvt.u32.u16 %r0, %rs0;", 1},
      {"mov.u16 %rs1, 0x0f00; or.b16 %rs0, %rs1, 0x00f0; cvt.u32.u16 %r0, %rs0;", 0x0ff0},
      {"bfe.u32 %r0, 0x12345678, 8, 8;", 0x56},
      {"bfe.s32 %r0, 0x0000f000, 12, 4;", 0xffffffff},
      {"bfi.b32 %r0, 0xab, 0x11111111, 8, 8;", 0x1111ab11},
      {"brev.b32 %r0, 1;", 0x80000000},
      {"popc.b32 %r0, 0xf0f0;", 8},
      {"clz.b32 %r0, 0x00010000;", 15},
      {"bfind.u32 %r0, 0x00010000;", 16},
      {"bfind.s32 %r0, -1;", 0xffffffff},
      {"not.b32 %r0, 0xff;", 0xffffff00},
      {"mov.b64 %rd0, {0x1, 0x2};", 0x200000001},
      {"mov.b64 {%r1, %r0}, 0x700000003;", 7},
      {"mov.b32 {%rs1, %rs2}, 0x12345678; cvt.u32.u16 %r0, %rs2;", 0x1234},
  });
}

TEST_CASE("floats round, saturate and meet NaN as the GPU's do") {
  check_forms({
      {"add.f32 %f0, 0f3F800000, 0f33800000; mov.b32 %r0, %f0;", 0x3F800000},  // a tie goes to even
      {"fma.rn.f32 %f0, 0f3F800001, 0f3F800001, 0fBF800002; mov.b32 %r0, %f0;", 0x28800000},  // one rounding
      {"min.f32 %f0, 0f7FC00000, 0f3F800000; mov.b32 %r0, %f0;", 0x3F800000},
      {"max.f32 %f0, 0f80000000, 0f00000000; mov.b32 %r0, %f0;", 0},
      {"mul.f32 %f0, 0f00000000, 0f7F800000; mov.b32 %r0, %f0;", 0x7fffffff},
      {"mul.rn.f32 %f0, 0f3F800001, 0f3F800001; add.rn.f32 %f0, %f0, 0fBF800002; mov.b32 %r0, %f0;", 0},
      {"sub.rn.f32 %f0, 0f3F800000, 0f33800000; mov.b32 %r0, %f0;", 0x3F7FFFFF},
      {"mul.ftz.f32 %f0, 0f00800000, 0f3F000000; mov.b32 %r0, %f0;", 0},
      {"mul.f32 %f0, 0f00800000, 0f3F000000; mov.b32 %r0, %f0;", 0x00400000},
      {"add.sat.f32 %f0, 0f40000000, 0f40000000; mov.b32 %r0, %f0;", 0x3F800000},
      {"rcp.rn.f32 %f0, 0f40400000; mov.b32 %r0, %f0;", 0x3EAAAAAB},
      {"sqrt.rn.f32 %f0, 0f40000000; mov.b32 %r0, %f0;", 0x3FB504F3},
      {"div.rn.f32 %f0, 0f3F800000, 0f40400000; mov.b32 %r0, %f0;", 0x3EAAAAAB},
      {"ex2.approx.ftz.f32 %f0, 0f40400000; mov.b32 %r0, %f0;", 0x41000000},
      {"tanh.approx.f32 %f0, 0f3F000000; mov.b32 %r0, %f0;", 0x3EEC9000},  // 0.462117 without its last bits
      {"tanh.approx.f32 %f0, 0fFF800000; mov.b32 %r0, %f0;", 0xBF800000},
      {"lg2.approx.f32 %f0, 0f41000000; mov.b32 %r0, %f0;", 0x40400000},
      {"neg.f32 %f0, 0f3F800000; mov.b32 %r0, %f0;", 0xBF800000},
      {"copysign.f32 %f0, 0fBF800000, 0f40000000; mov.b32 %r0, %f0;", 0xC0000000},
      {"add.f64 %fd0, 0d3FF0000000000000, 0d3FF0000000000000; mov.b64 %rd0, %fd0;", 0x4000000000000000},
      {"mul.rn.f64 %fd0, 0d4000000000000000, 0d4008000000000000; add.rn.f64 %fd0, %fd0, 0d3FF0000000000000; "
       "mov.b64 %rd0, %fd0;",
       0x401C000000000000},  // 2*3+1
      {"div.rn.f64 %fd0, 0d3FF0000000000000, 0d4008000000000000; mov.b64 %rd0, %fd0;", 0x3FD5555555555555},
      {"fma.rn.bf16x2 %r0, 0x3F804000, 0x40004000, 0x3F803F80;", 0x404040A0},  // 1*2+1, 2*2+1
      {"add.bf16 %rs0, 0x3F80, 0x3B80; cvt.u32.u16 %r0, %rs0;", 0x3F80},       // 1 + 2^-8 is a tie
      {"add.f16x2 %r0, 0x3C003C00, 0x40003C00;", 0x42004000},                  // 1+2, 1+1
  });
}

TEST_CASE("comparisons handle NaN, and selections follow their predicate") {
  check_forms({
      {"setp.le.f32 %p0, 0f7FC00000, 0f3F800000; selp.u32 %r0, 1, 0, %p0;", 0},
      {"setp.leu.f32 %p0, 0f7FC00000, 0f3F800000; selp.u32 %r0, 1, 0, %p0;", 1},
      {"setp.ne.f32 %p0, 0f7FC00000, 0f3F800000; selp.u32 %r0, 1, 0, %p0;", 0},
      {"setp.neu.f32 %p0, 0f7FC00000, 0f3F800000; selp.u32 %r0, 1, 0, %p0;", 1},
      {"setp.nan.f32 %p0, 0f7FC00000, 0f3F800000; selp.u32 %r0, 1, 0, %p0;", 1},
      {"setp.lt.s32 %p0, -1, 1; selp.u32 %r0, 1, 0, %p0;", 1},
      {"setp.lt.u32 %p0, -1, 1; selp.u32 %r0, 1, 0, %p0;", 0},
      {"mov.u16 %rs1, 0xffff; setp.lt.u16 %p0, %rs1, 1; selp.u32 %r0, 1, 0, %p0;", 0},
      {"setp.eq.s32 %p1, 1, 1; setp.eq.and.s32 %p0|%p2, 2, 3, %p1; selp.u32 %r0, 1, 0, %p2;", 1},
      {"set.gt.u32.s32 %r0, 2, 1;", 0xffffffff},
      {"setp.eq.s32 %p1, 1, 1; not.pred %p0, %p1; @!%p0 mov.u32 %r0, 7;", 7},
  });
}

TEST_CASE("conversions round, saturate and extend") {
  check_forms({
      {"cvt.rn.bf16x2.f32 %r0, 0f3F800000, 0f40000000;", 0x3F804000},
      {"cvt.rn.bf16.f32 %rs0, 0f3F808000; cvt.u32.u16 %r0, %rs0;", 0x3F80},
      {"cvt.rn.bf16.f32 %rs0, 0f3F818000; cvt.u32.u16 %r0, %rs0;", 0x3F82},
      {"cvt.rn.bf16.f32 %rs0, 0f7FC00001; cvt.u32.u16 %r0, %rs0;", 0x7FFF},
      {"cvt.rn.f16.f32 %rs0, 0f477FF000; cvt.u32.u16 %r0, %rs0;", 0x7C00},  // 65520 is out of range
      {"mov.u16 %rs1, 0x3C00; cvt.f32.f16 %f0, %rs1; mov.b32 %r0, %f0;", 0x3F800000},
      {"cvt.rzi.s32.f32 %r0, 0f4F32D05E;", 0x7FFFFFFF},  // 3e9
      {"cvt.rzi.s32.f32 %r0, 0f7FC00000;", 0},
      {"cvt.rzi.s32.f32 %r0, 0fBFC00000;", 0xFFFFFFFF},
      {"cvt.rni.s32.f32 %r0, 0f40200000;", 2},
      {"cvt.rmi.f32.f32 %f0, 0fBFC00000; mov.b32 %r0, %f0;", 0xC0000000},
      {"cvt.rn.f32.s32 %f0, 16777217; mov.b32 %r0, %f0;", 0x4B800000},
      {"cvt.rz.f32.u32 %f0, 0xffffffff; mov.b32 %r0, %f0;", 0x4F7FFFFF},
      {"cvt.sat.f32.f32 %f0, 0f40000000; mov.b32 %r0, %f0;", 0x3F800000},
      {"cvt.f64.f32 %fd0, 0f3FC00000; mov.b64 %rd0, %fd0;", 0x3FF8000000000000},
      {"mov.u32 %r1, -1; cvt.s64.s32 %rd0, %r1;", 0xffffffffffffffff},
      {"mov.u32 %r1, 0x1ff; cvt.u32.u8 %r0, %r1;", 0xff},
      {"mov.u32 %r1, 0x80; cvt.s32.s8 %r0, %r1;", 0xffffff80},
      {"mov.u32 %r1, 300; cvt.sat.u8.u32 %rs0, %r1; cvt.u32.u16 %r0, %rs0;", 255},
  });
}

TEST_CASE("shuffles, votes and reductions combine the lanes they name") {
  check_lanes("shfl.sync.bfly.b32 %r0|%p0, %r30, 1, 31, -1;", [](uint64_t l) { return l ^ 1; });
  check_lanes("shfl.sync.down.b32 %r0|%p0, %r30, 4, 31, -1;",
              [](uint64_t l) { return l + 4 < 32 ? l + 4 : l; });
  check_lanes("shfl.sync.up.b32 %r0|%p0, %r30, 4, 0, -1;", [](uint64_t l) { return l >= 4 ? l - 4 : l; });
  check_lanes("shfl.sync.idx.b32 %r0, %r30, 3, 6175, -1;",
              [](uint64_t l) { return (l & 24) | 3; });  // width 8
  check_lanes("shfl.sync.down.b32 %r1|%p0, %r30, 4, 31, -1; selp.u32 %r0, 1, 0, %p0;",
              [](uint64_t l) { return l + 4 < 32; });
  check_lanes("setp.lt.u32 %p0, %r30, 5; vote.sync.ballot.b32 %r0, %p0, -1;", [](uint64_t) { return 31; });
  check_lanes("setp.lt.u32 %p0, %r30, 5; vote.sync.any.pred %p1, !%p0, -1; selp.u32 %r0, 1, 0, %p1;",
              [](uint64_t) { return 1; });
  check_lanes("setp.lt.u32 %p0, %r30, 5; vote.sync.all.pred %p1, %p0, -1; selp.u32 %r0, 1, 0, %p1;",
              [](uint64_t) { return 0; });
  check_lanes("shr.u32 %r1, %r30, 3; match.any.sync.b32 %r0, %r1, -1;",
              [](uint64_t l) { return 0xffu << (l / 8 * 8); });
  check_lanes("redux.sync.add.u32 %r0, %r30, -1;", [](uint64_t) { return 496; });
  check_lanes("redux.sync.add.s32 %r0, %r30, -1;", [](uint64_t) { return 496; });
  check_lanes("redux.sync.max.s32 %r0, %r30, -1;", [](uint64_t) { return 31; });
}

TEST_CASE("lanes that diverge at a branch reconverge where their paths join") {
  check_lanes(R"(
    setp.lt.u32 %p0, %r30, 10;
    @%p0 bra LESS;
    mov.u32 %r1, 100;
    bra.uni JOIN;
  LESS:
    mov.u32 %r1, 200;
  JOIN:
    activemask.b32 %r2;
    setp.eq.u32 %p1, %r2, -1;
    selp.u32 %r0, %r1, 0, %p1;
  )",
              [](uint64_t l) { return l < 10 ? 200 : 100; });
  check_lanes(R"(
    mov.u32 %r1, 0;
  AGAIN:
    add.u32 %r0, %r0, 3;
    add.u32 %r1, %r1, 1;
    setp.le.u32 %p0, %r1, %r30;
    @%p0 bra AGAIN;
  )",
              [](uint64_t l) { return 3 * (l + 1); });
}

TEST_CASE("an indexed branch takes every lane to its own target") {
  check_lanes(R"(
    rem.u32 %r1, %r30, 3;
    PLACES: .branchtargets ZERO, ONE, TWO;
    brx.idx %r1, PLACES;
  ZERO:
    mov.u32 %r0, 10;
    bra.uni DONE;
  ONE:
    mov.u32 %r0, 11;
    bra.uni DONE;
  TWO:
    mov.u32 %r0, 12;
  DONE:
    activemask.b32 %r2;
    setp.eq.u32 %p1, %r2, -1;
    selp.u32 %r0, %r0, 0, %p1;
  )",
              [](uint64_t l) { return 10 + l % 3; });
}

TEST_CASE("polling lanes do not starve the lane that ends their wait") {
  check_lanes(R"(
    setp.eq.u32 %p0, %r30, 31;
    @%p0 st.shared.u32 [tile], 0;
    bar.sync 0;
    @%p0 bra SET;
  WAIT:
    atom.shared.add.u32 %r0, [tile], 0;
    setp.eq.u32 %p1, %r0, 0;
    @%p1 bra WAIT;
    bra.uni DONE;
  SET:
    atom.shared.exch.b32 %r1, [tile], 5;
    mov.u32 %r0, 5;
  DONE:
  )",
              [](uint64_t) { return 5; });
}

TEST_CASE("shared memory, vectors and atomics store and load values") {
  check_lanes(R"(
    mov.u32 %r1, tile;
    shl.b32 %r2, %r30, 2;
    add.u32 %r3, %r1, %r2;
    st.shared.u32 [%r3], %r30;
    bar.sync 0;
    xor.b32 %r2, %r2, 124;
    add.u32 %r3, %r1, %r2;
    ld.shared.u32 %r0, [%r3];
  )",
              [](uint64_t l) { return 31 - l; });
  check_lanes(R"(
    mul.lo.u32 %r1, %r30, 16;
    mov.u32 %r2, tile;
    add.u32 %r1, %r1, %r2;
    st.shared.v4.u32 [%r1], {%r30, 1, 2, %r30};
    ld.shared.v2.u64 {%rd1, %rd2}, [%r1];
    shr.u64 %rd0, %rd2, 32;
  )",
              [](uint64_t l) { return l; });
  check_lanes(R"(
    setp.eq.u32 %p0, %r30, 0;
    @%p0 st.shared.u32 [tile], 0;
    bar.sync 0;
    atom.shared.add.u32 %r1, [tile], 2;
    bar.sync 0;
    ld.shared.u32 %r0, [tile];
  )",
              [](uint64_t) { return 64; });
  check_lanes(R"(
    mov.u32 %r1, tile;
    add.u32 %r1, %r1, %r30;
    st.shared.u8 [%r1+3], 0x80;
    ld.shared.s8 %r0, [%r1+3];
  )",
              [](uint64_t) { return 0xffffff80u; });
  check_lanes(R"(
    mov.u64 %rd1, tile;
    mul.wide.u32 %rd2, %r30, 4;
    add.u64 %rd1, %rd1, %rd2;
    cvta.shared.u64 %rd1, %rd1;
    st.u32 [%rd1], 9;
    ld.u32 %r1, [%rd1];
    isspacep.shared %p0, %rd1;
    selp.u32 %r0, %r1, 0, %p0;
  )",
              [](uint64_t) { return 9; });
}

TEST_CASE("an unknown opcode, modifier or register is an error with its line, before anything runs") {
  CHECK(test::error_of([] {
          run_ptx("frobnicate.b32 %r0, 1;");
        }).find("frobnicate.b32: unknown opcode (PTX line 11)") != std::string::npos);
  CHECK(test::error_of([] { run_ptx("add.wrong.s32 %r0, 1, 2;"); }).find("unknown modifier .wrong") !=
        std::string::npos);
  CHECK(test::error_of([] { run_ptx("add.s32 %r0, %rd1, 2;"); }).find("has 64 bits, the type has 32") !=
        std::string::npos);
  CHECK(findings().empty());
}

TEST_CASE("every kernel of the program is decoded") {
  const std::vector<LoadedKernel> kernels = load_everything();
  CHECK(kernels.size() > 20);
  for (const LoadedKernel& kernel : kernels) CHECK(kernel.ops > 0);
}

TEST_CASE("of code for several architectures, the newest that the device supports runs") {
  std::set<std::string> targets;
  for (const LoadedKernel& kernel : load_everything()) targets.insert(kernel.target);
  CHECK(targets == std::set<std::string>{"sm_80", "sm_90a"});
  CHECK(run_ptx("mov.u32 %r0, 5;", 32, "", 80)[0] == 5);
  const void* stub =
      register_ptx(".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry only_new() { ret; }");
  const ScopedOptions scope({.arch = 80});
  const std::string error = test::error_of([&] { kernel_of(stub); });
  CHECK(error == "the device is sm_80, for which there is no code of only_new, only for sm_90a");
}

TEST_CASE("instructions that compilers emit only for sm_90 or for single bytes work") {
  check_forms(
      {{"mov.b16 %rs1, 0x3FC0; cvt.f32.bf16 %f1, %rs1; mov.b32 %r0, %f1;", 0x3fc00000},
       {"mov.b64 %rd1, out; cvta.param.u64 %rd1, %rd1; ld.u64 %rd2, [%rd1]; ld.param.u64 %rd3, [out];\n"
        "setp.eq.u64 %p1, %rd2, %rd3; selp.u32 %r0, 1, 0, %p1;",
        1}});
  CHECK(run_ptx("mov.u16 %rs1, 0x1ff; st.global.u8 [source], %rs1; ld.global.u8 %rs2, [source];\n"
                "cvt.u32.u16 %r0, %rs2;",
                1)[0] == 0xff);
  const ScopedOptions scope({.may_add_floats = {"test"}});
  CHECK(run_ptx("st.global.f32 [source], 0f3FC00000; atom.global.add.f32 %f1, [source], 0f40100000;\n"
                "ld.global.u32 %r0, [source];",
                1)[0] == 0x40700000);
}
