// Loads and stores of every space, type and width that compilers emit, against bytes laid out by hand.

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/opcode_check.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

const std::string kShow = "mov.b32 %r0, %f0;";
// %r1: the lane's own 16 bytes of the tile.
const std::string kOwn = "mov.u32 %r1, tile; mad.lo.u32 %r1, %r30, 16, %r1;";

}  // namespace

TEST_CASE("global memory is read in every width") {  // byte i of the source is i
  check_forms({
      {"ld.global.u32 %r0, [source+4];", 0x07060504},
      {"ld.global.s32 %r0, [source+252];", 0xfffefdfc},
      {"ld.global.nc.u32 %r0, [source+8];", 0x0b0a0908},
      {"ld.acquire.gpu.global.b32 %r0, [source+12];", 0x0f0e0d0c},
      {"ld.global.v2.f32 {%f1, %f0}, [source+16]; mov.b32 %r0, %f0;", 0x17161514},
      {"ld.global.nc.f32 %f0, [source+4]; mov.b32 %r0, %f0;", 0x07060504},
      {"ld.global.v2.u8 {%rs1, %rs0}, [source+2]; cvt.u32.u16 %r0, %rs0;", 3},
      {"ld.global.v4.u8 {%rs1, %rs2, %rs3, %rs0}, [source+8]; cvt.u32.u16 %r0, %rs0;", 11},
      {"ld.global.u16 %rs0, [source+2]; cvt.u32.u16 %r0, %rs0;", 0x0302},
      {"ld.global.f32 %f0, [source+4]; mov.b32 %r0, %f0;", 0x07060504},
      {"ld.global.v4.u32 {%r1, %r2, %r3, %r0}, [source+16];", 0x1f1e1d1c},
      {"ld.global.v4.f32 {%f1, %f2, %f0, %f3}, [source+16]; mov.b32 %r0, %f0;", 0x1b1a1918},
      {"ld.global.v4.u16 {%rs1, %rs0, %rs2, %rs3}, [source+8]; cvt.u32.u16 %r0, %rs0;", 0x0b0a},
      {"mov.u64 %rd1, source; cvta.global.u64 %rd2, %rd1; cvta.to.global.u64 %rd3, %rd2; ld.global.u32 %r0, "
       "[%rd3];",
       0x03020100},
  });
}

TEST_CASE("global memory is written in every width") {
  const std::string at = "mov.u64 %rd1, source; mad.wide.u32 %rd1, %r30, 8, %rd1;";  // the lane's own 8 bytes
  check_lanes(at + "cvt.rn.f32.u32 %f1, %r30; st.global.f32 [%rd1], %f1; ld.global.f32 %f0, [%rd1]; "
                   "cvt.rzi.u32.f32 %r0, %f0;",
              [](uint64_t l) { return l; });
  check_lanes(at + "cvt.u16.u32 %rs1, %r30; st.global.u16 [%rd1+2], %rs1; ld.global.u32 %r0, [%rd1];",
              [](uint64_t l) { return (8 * l & 255) | (8 * l + 1) << 8 | l << 16; });
  check_lanes(
      at + "cvt.u16.u32 %rs1, %r30; mov.u16 %rs2, 9; st.global.v4.u16 [%rd1], {%rs2, %rs1, %rs2, %rs2};"
           "ld.global.u32 %r0, [%rd1];",
      [](uint64_t l) { return 9 | l << 16; });
  check_lanes(at + "cvt.u16.u32 %rs1, %r30; mov.u16 %rs2, 9; st.global.v2.u16 [%rd1], {%rs2, %rs1};"
                   "ld.global.u32 %r0, [%rd1];",
              [](uint64_t l) { return 9 | l << 16; });
  const std::string codes = at + "cvt.u16.u32 %rs1, %r30; mov.u16 %rs2, 9; ";
  check_lanes(
      codes + "st.global.v2.u8 [%rd1], {%rs2, %rs1}; ld.global.u16 %rs0, [%rd1]; cvt.u32.u16 %r0, %rs0;",
      [](uint64_t l) { return 9 | l << 8; });
  check_lanes(codes + "st.global.v4.u8 [%rd1], {%rs2, %rs1, %rs2, %rs2}; ld.global.u32 %r0, [%rd1];",
              [](uint64_t l) { return 0x09090009 | l << 8; });
  check_lanes(at + "st.global.v2.u32 [%rd1], {7, %r30}; ld.global.u32 %r0, [%rd1+4];",
              [](uint64_t l) { return l; });
  check_lanes(at + "cvt.rn.f32.u32 %f1, %r30; mov.f32 %f2, 0f40000000; st.global.v2.f32 [%rd1], {%f2, %f1};"
                   "ld.global.f32 %f0, [%rd1+4]; cvt.rzi.u32.f32 %r0, %f0;",
              [](uint64_t l) { return l; });
  check_lanes(
      at + "st.global.u32 [%rd1], %r30; red.release.gpu.global.add.s32 [%rd1], 5; ld.global.u32 %r0, [%rd1];",
      [](uint64_t l) { return l + 5; });
  const std::string few =
      "mov.u64 %rd1, source; and.b32 %r1, %r30, 15; mad.wide.u32 %rd1, %r1, 16, %rd1; setp.lt.u32 %p1, %r30, "
      "16;";
  check_lanes(few + "@%p1 st.global.v4.u32 [%rd1], {%r30, 1, 2, 3}; @%p1 ld.global.u32 %r0, [%rd1];",
              [](uint64_t l) { return l < 16 ? l : 0; });
  check_lanes(few +
                  "cvt.rn.f32.u32 %f1, %r30; @%p1 st.global.v4.f32 [%rd1], {%f1, %f1, %f1, %f1};"
                  "@%p1 ld.global.f32 %f0, [%rd1+12]; @%p1 cvt.rzi.u32.f32 %r0, %f0;",
              [](uint64_t l) { return l < 16 ? l : 0; });
}

TEST_CASE("atomics on global memory process lanes in order") {
  check_lanes("atom.global.add.u32 %r0, [source], 1;", [](uint64_t l) { return 0x03020100 + l; });
  check_lanes("atom.global.exch.b32 %r0, [source], %r30;",
              [](uint64_t l) { return l == 0 ? 0x03020100 : l - 1; });
}

TEST_CASE("float atomics are a finding unless the kernel may use them") {
  const std::string add =
      "st.global.u32 [source], 0; bar.sync 0; atom.global.add.f32 %f0, [source], 0f40000000; ";
  {
    const ScopedOptions scope({.may_add_floats = {"test"}});
    check_lanes(add + "cvt.rzi.u32.f32 %r0, %f0;", [](uint64_t l) { return 2 * l; });
    check_lanes(
        "st.global.u32 [source], 0; bar.sync 0; red.global.add.f32 [source], 0f40000000; bar.sync 0; "
        "ld.global.f32 %f0, [source]; cvt.rzi.u32.f32 %r0, %f0;",
        [](uint64_t) { return 64; });
  }
  for (const std::string& body :
       {add, std::string(
                 "st.global.u32 [source], 0; mov.u64 %rd1, source; cvta.global.u64 %rd1, %rd1; red.add.f32 "
                 "[%rd1], 0f40000000;")}) {
    CHECK_THROWS_AS(run_ptx(body), Error);
    const std::vector<Finding> found = take_findings();
    REQUIRE(found.size() == 1);
    CHECK(found[0].kind == FindingKind::float_atomic);
  }
  // Those of shared memory pass: schedules show whether their order changes bits.
  check_lanes(
      "st.shared.u32 [tile], 0; bar.sync 0; atom.shared.add.f32 %f0, [tile], 0f40000000; "
      "cvt.rzi.u32.f32 %r0, %f0;",
      [](uint64_t l) { return 2 * l; });
}

TEST_CASE("constants are read by all lanes") {
  const auto results = run_ptx("ld.const.f32 %f0, [numbers+4];" + kShow, 32,
                               ".const .align 4 .f32 numbers[2] = {0f3F800000, 0f40000000};\n");
  for (const uint64_t result : results) CHECK(result == 0x40000000);
  for (const uint64_t result : run_ptx("ld.const.u8 %rs0, [bytes+2]; cvt.u32.u16 %r0, %rs0;", 32,
                                       ".const .align 4 .b8 bytes[4] = {5, 6, 7, 8};\n"))
    CHECK(result == 7);
}

TEST_CASE("shared memory holds floats, bytes and vectors") {
  check_lanes(kOwn +
                  "cvt.rn.f32.u32 %f1, %r30; st.shared.f32 [%r1], %f1; ld.shared.f32 %f0, [%r1]; "
                  "cvt.rzi.u32.f32 %r0, %f0;",
              [](uint64_t l) { return l; });
  check_lanes(kOwn + "st.shared.b32 [%r1+4], 0x80402010; ld.shared.u8 %rs0, [%r1+6]; cvt.u32.u16 %r0, %rs0;",
              [](uint64_t) { return 0x40; });
  check_lanes(kOwn + "cvt.u64.u32 %rd1, %r30; st.shared.u64 [%r1+8], %rd1; ld.shared.u64 %rd0, [%r1+8];",
              [](uint64_t l) { return l; });
  check_lanes(kOwn +
                  "cvt.u64.u32 %rd1, %r30; st.shared.u64 [%r1+8], %rd1; ld.shared.f64 %fd0, [%r1+8]; "
                  "mov.b64 %rd0, %fd0;",
              [](uint64_t l) { return l; });
  check_lanes(kOwn +
                  "cvt.rn.f32.u32 %f1, %r30; mov.f32 %f2, 0f40000000; st.shared.v2.f32 [%r1+8], {%f2, %f1};"
                  "ld.shared.v2.f32 {%f3, %f0}, [%r1+8]; add.f32 %f0, %f0, %f3; cvt.rzi.u32.f32 %r0, %f0;",
              [](uint64_t l) { return l + 2; });
  check_lanes(kOwn + "st.shared.v4.b32 [%r1], {%r30, 1, 2, 3}; ld.shared.v4.b32 {%r0, %r2, %r3, %r4}, [%r1];",
              [](uint64_t l) { return l; });
  check_lanes(
      kOwn +
          "cvt.rn.f32.u32 %f1, %r30; st.shared.v4.f32 [%r1], {%f1, %f1, %f1, 0f3f800000}; "
          "ld.shared.v4.f32 {%f0, %f1, %f2, %f3}, [%r1]; add.f32 %f0, %f0, %f3; cvt.rzi.u32.f32 %r0, %f0;",
      [](uint64_t l) { return l + 1; });
}

TEST_CASE("cache hints have no effect") {
  check_lanes(kOwn +
                  "cp.async.cg.shared.global.L2::128B [%r1], [source+16], 16; cp.async.wait_all; "
                  "ld.shared.u32 %r0, [%r1+4];",
              [](uint64_t) { return 0x17161514; });
}

TEST_CASE("every lane has its own local memory, of every width") {
  const std::string depot = ".local .align 16 .b8 depot[32]; ";
  const auto local = [&](const std::string& rest) { return depot + rest; };
  check_lanes(local("st.local.u32 [depot], %r30; ld.local.u32 %r0, [depot];"), [](uint64_t l) { return l; });
  check_lanes(local("cvt.rn.f32.u32 %f1, %r30; st.local.f32 [depot+4], %f1; ld.local.f32 %f0, [depot+4]; "
                    "cvt.rzi.u32.f32 %r0, %f0;"),
              [](uint64_t l) { return l; });
  check_lanes(local("cvt.u16.u32 %rs1, %r30; st.local.u16 [depot+2], %rs1; st.local.u16 [depot], 3; "
                    "ld.local.u32 %r0, [depot];"),
              [](uint64_t l) { return l << 16 | 3; });
  check_lanes(local("cvt.u64.u32 %rd1, %r30; st.local.u64 [depot+8], %rd1; ld.local.u64 %rd0, [depot+8];"),
              [](uint64_t l) { return l; });
  check_lanes(local("st.local.f64 [depot], 0d3FF0000000000000; ld.local.u32 %r0, [depot+4];"),
              [](uint64_t) { return 0x3FF00000; });
  check_lanes(local("st.local.v2.u32 [depot], {7, %r30}; ld.local.u32 %r0, [depot+4];"),
              [](uint64_t l) { return l; });
  check_lanes(local("mov.u16 %rs1, 5; mov.u16 %rs2, 6; st.local.v2.u8 [depot], {%rs1, %rs2}; "
                    "st.local.v2.u8 [depot+2], {%rs2, %rs1}; ld.local.u32 %r0, [depot];"),
              [](uint64_t) { return 0x05060605; });
  check_lanes(local("mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000; "
                    "st.local.v4.f32 [depot+16], {%f1, %f2, %f1, %f1}; ld.local.f32 %f0, [depot+20];") +
                  kShow,
              [](uint64_t) { return 0x40000000; });
  check_lanes(local("mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f40000000; "
                    "st.local.v4.f32 [depot], {%f1, %f1, %f2, %f1}; "
                    "ld.local.v4.f32 {%f3, %f4, %f0, %f5}, [depot];") +
                  kShow,
              [](uint64_t) { return 0x40000000; });
  check_lanes(local("mov.u64 %rd1, depot; cvta.local.u64 %rd2, %rd1; st.u32 [%rd2+4], %r30; "
                    "cvta.to.local.u64 %rd3, %rd2; ld.local.u32 %r0, [%rd3+4];"),
              [](uint64_t l) { return l; });
}

TEST_CASE("parameters of functions are read in every width") {
  const std::string functions = R"(
.func (.param .b32 result) of_bytes(.param .align 16 .b8 x[16]) {
  .reg .b16 %rs<9>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<3>;
  .reg .f32 %f<4>;
  ld.param.v2.u64 {%rd1, %rd2}, [x];
  ld.param.v4.u32 {%r12, %r13, %r14, %r15}, [x];
  ld.param.v2.u32 {%r8, %r9}, [x];
  ld.param.s32 %r10, [x+12];
  ld.param.u8 %rs1, [x+1];
  ld.param.s8 %rs2, [x+2];
  ld.param.v2.u8 {%rs3, %rs4}, [x+4];
  ld.param.u16 %rs0, [x+6];
  ld.param.f32 %f1, [x+8];
  ld.param.v2.f32 {%f2, %f3}, [x+8];
  ld.param.v4.u8 {%rs5, %rs6, %rs7, %rs8}, [x+12];
  cvt.u32.u16 %r1, %rs1;
  cvt.s32.s16 %r2, %rs2;
  cvt.u32.u16 %r3, %rs4;
  cvt.u32.u16 %r4, %rs0;
  cvt.rzi.u32.f32 %r5, %f1;
  add.u32 %r1, %r1, %r2;
  add.u32 %r1, %r1, %r3;
  add.u32 %r1, %r1, %r4;
  add.u32 %r1, %r1, %r5;
  cvt.u32.u16 %r6, %rs7;
  add.u32 %r1, %r1, %r6;
  cvt.rzi.u32.f32 %r7, %f3;
  add.u32 %r1, %r1, %r7;
  xor.b32 %r8, %r8, %r9;
  xor.b32 %r8, %r8, %r10;
  xor.b64 %rd1, %rd1, %rd2;
  cvt.u32.u64 %r11, %rd1;
  xor.b32 %r8, %r8, %r11;
  xor.b32 %r12, %r12, %r13;
  xor.b32 %r14, %r14, %r15;
  xor.b32 %r8, %r8, %r12;
  xor.b32 %r8, %r8, %r14;
  add.u32 %r1, %r1, %r8;
  st.param.b32 [result], %r1;
  ret;
}
)";
  const auto results = run_ptx(R"(
  { .param .align 16 .b8 a[16]; .param .b32 b;
    mov.u64 %rd1, 0x0300050000FF0200;
    st.param.b64 [a], %rd1;
    mov.f32 %f1, 0f41200000;
    st.param.f32 [a+8], %f1;
    mov.b32 %r1, 0x40302010;
    st.param.b32 [a+12], %r1;
    call.uni (b), of_bytes, (a);
    ld.param.b32 %r0, [b]; })",
                               32, functions);
  // Bytes 0 2 -1 0 0 5 0 3: 2, -1, 5 (of 0 and 5), 0x0300; then 10, 0x30 of four bytes, and what is
  // whole of 2.75..., the float that these bytes are; and the words of bytes 0, 4 and 12, of 0 and 8
  // again, and of all four, of each bit one.
  constexpr uint64_t kAll = 0x00FF0200 ^ 0x03000500 ^ 0x41200000 ^ 0x40302010;
  constexpr uint64_t kWords = 0x00FF0200 ^ 0x03000500 ^ 0x40302010 ^ 0x00FF0200 ^ 0x41200000 ^ kAll;
  for (const uint64_t result : results) CHECK(result == kWords + 2 - 1 + 5 + 0x300 + 10 + 0x30 + 2);
}
