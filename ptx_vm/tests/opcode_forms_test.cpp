// Forms of arithmetic that compilers emit, each against a result worked out by hand: other widths and types
// than those of opcode_test.cpp.

#include "ptx_vm/tests/opcode_check.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

TEST_CASE("integers of 16 and 64 bits add, multiply, divide and shift within their width") {
  check_forms({
      {"mul.lo.s16 %rs0, 0x0101, 0x0101; cvt.u32.u16 %r0, %rs0;", 0x0201},
      {"mul.wide.u16 %r0, 0xffff, 2;", 0x1fffe},
      {"sub.s16 %rs0, 1, 2; cvt.u32.u16 %r0, %rs0;", 0xffff},
      {"sub.s32 %r0, 3, 5;", 0xfffffffe},
      {"sub.s64 %rd0, 3, 5;", 0xfffffffffffffffe},
      {"mul.lo.s64 %rd0, 0x100000001, 0x100000001;", 0x200000001},
      {"div.s64 %rd0, -7, 2;", 0xfffffffffffffffd},
      {"div.u64 %rd0, -7, 2;", 0x7ffffffffffffffc},
      {"rem.s64 %rd0, -7, 2;", 0xffffffffffffffff},
      {"min.s64 %rd0, -1, 1;", 0xffffffffffffffff},
      {"neg.s64 %rd0, 5;", 0xfffffffffffffffb},
      {"shl.b16 %rs0, 0x8001, 1; cvt.u32.u16 %r0, %rs0;", 2},
      {"shr.s64 %rd0, -8, 1;", 0xfffffffffffffffc},
      {"and.b16 %rs0, 0xff0f, 0x0ff0; cvt.u32.u16 %r0, %rs0;", 0x0f00},
      {"xor.b16 %rs0, 0xff0f, 0x0ff0; cvt.u32.u16 %r0, %rs0;", 0xf0ff},
      {"and.b64 %rd0, 0xff00000000000001, 0x0f00000000000003;", 0x0f00000000000001},
      {"xor.b64 %rd0, 0xff00000000000001, 0x0f00000000000003;", 0xf000000000000002},
      {"not.b64 %rd0, 0xff;", 0xffffffffffffff00},
      {"bfi.b64 %rd0, 0xab, 0, 40, 8;", 0xab0000000000},
  });
}

TEST_CASE("floats of both widths add, multiply and round as their modifiers say") {
  check_forms({
      {"abs.f32 %f0, 0fBF800000; mov.b32 %r0, %f0;", 0x3F800000},
      {"add.rn.f32 %f0, 0f3F800000, 0f3F800000; mov.b32 %r0, %f0;", 0x40000000},
      {"sub.f32 %f0, 0f3F800000, 0f40000000; mov.b32 %r0, %f0;", 0xBF800000},
      {"mul.rn.f32 %f0, 0f40400000, 0f3F000000; mov.b32 %r0, %f0;", 0x3FC00000},
      {"fma.rm.f32 %f0, 0f3F800000, 0f3F800000, 0fB0800000; mov.b32 %r0, %f0;", 0x3F7FFFFF},  // 1 - 2^-30
      {"rcp.approx.ftz.f32 %f0, 0f40800000; mov.b32 %r0, %f0;", 0x3E800000},
      {"div.approx.f32 %f0, 0f3F800000, 0f40800000; mov.b32 %r0, %f0;", 0x3E800000},
      {"mov.f64 %fd0, 0d3FF8000000000000; mov.b64 %rd0, %fd0;", 0x3FF8000000000000},
      {"sqrt.rn.f64 %fd0, 0d4000000000000000; mov.b64 %rd0, %fd0;", 0x3FF6A09E667F3BCD},  // sqrt 2
      {"mul.f64 %fd0, 0d4008000000000000, 0d3FE0000000000000; mov.b64 %rd0, %fd0;", 0x3FF8000000000000},
  });
}

TEST_CASE("conversions between widths round ties to even, truncate and extend") {
  check_forms({
      {"cvt.rn.f32.f64 %f0, 0d3FF0000010000000; mov.b32 %r0, %f0;", 0x3F800000},  // 1 + 2^-24
      {"cvt.rn.f32.s64 %f0, 16777217; mov.b32 %r0, %f0;", 0x4B800000},
      {"cvt.rn.f32.u32 %f0, 0xffffffff; mov.b32 %r0, %f0;", 0x4F800000},
      {"cvt.rn.f64.s32 %fd0, -1; mov.b64 %rd0, %fd0;", 0xBFF0000000000000},
      {"cvt.rn.f64.s64 %fd0, 9007199254740993; mov.b64 %rd0, %fd0;", 0x4340000000000000},  // 2^53 + 1
      {"cvt.rni.f32.f32 %f0, 0f40200000; mov.b32 %r0, %f0;", 0x40000000},                  // 2.5
      {"cvt.rzi.f32.f32 %f0, 0fBFC00000; mov.b32 %r0, %f0;", 0xBF800000},                  // -1.5
      {"mov.u16 %rs1, 0x8000; cvt.s32.s16 %r0, %rs1;", 0xffff8000},
      {"mov.u32 %r1, 0x12345; cvt.u16.u32 %rs0, %r1; cvt.u32.u16 %r0, %rs0;", 0x2345},
      {"mov.u64 %rd1, 0x100012345; cvt.u16.u64 %rs0, %rd1; cvt.u32.u16 %r0, %rs0;", 0x2345},
      {"cvt.rn.f16x2.f32 %r0, 0f3F800000, 0f40000000;", 0x3C004000},
      {"mov.u64 %rd1, 0x100000002; cvt.u32.u64 %r0, %rd1;", 2},
  });
}

namespace {

// "setp.OP.TYPE" of a and b, as 1 or 0.
uint64_t compared(const std::string& form, const std::string& a, const std::string& b) {
  return run_ptx(form + " %p0, " + a + ", " + b + "; selp.u32 %r0, 1, 0, %p0;")[0];
}

}  // namespace

TEST_CASE("comparisons of every width and sign, and of floats with and without order") {
  const std::string one = "0f3F800000", two = "0f40000000", nan = "0f7FC00000";
  struct Comparison {
    std::string form, a, b;
    uint64_t expected;
  };
  for (const Comparison& c : std::vector<Comparison>{
           {"setp.eq.b32", "7", "7", 1},           {"setp.ne.b32", "7", "8", 1},
           {"setp.eq.b64", "0x100000000", "0", 0}, {"setp.eq.s16", "-1", "-1", 1},
           {"setp.ne.s16", "-1", "-1", 0},         {"setp.eq.s64", "0x100000000", "0", 0},
           {"setp.ne.s32", "1", "2", 1},           {"setp.ne.s64", "0x100000000", "0", 1},
           {"setp.ge.s32", "-1", "-1", 1},         {"setp.ge.s64", "-1", "0", 0},
           {"setp.gt.s16", "0", "-1", 1},          {"setp.lt.s16", "-1", "0", 1},
           {"setp.gt.s32", "0", "-1", 1},          {"setp.gt.s64", "0", "-1", 1},
           {"setp.le.s32", "-1", "0", 1},          {"setp.le.s64", "0", "-1", 0},
           {"setp.lt.s64", "-1", "0", 1},          {"setp.lt.u64", "-1", "0", 0},
           {"setp.ge.u64", "-1", "0", 1},          {"setp.le.u64", "-1", "0", 0},
           {"setp.eq.f32", one, one, 1},           {"setp.eq.f32", nan, nan, 0},
           {"setp.lt.f32", one, two, 1},           {"setp.lt.f32", nan, two, 0},
           {"setp.gt.f32", two, one, 1},           {"setp.gt.f32", two, nan, 0},
           {"setp.ge.f32", one, one, 1},           {"setp.ge.f32", nan, one, 0},
           {"setp.ltu.f32", two, one, 0},          {"setp.ltu.f32", nan, one, 1},
           {"setp.gtu.f32", one, two, 0},          {"setp.gtu.f32", one, nan, 1},
           {"setp.geu.f32", one, two, 0},          {"setp.geu.f32", nan, two, 1},
       }) {
    CAPTURE(c.form);
    CAPTURE(c.a);
    CAPTURE(c.b);
    CHECK(compared(c.form, c.a, c.b) == c.expected);
  }
}

TEST_CASE("selections of every width, and predicates that are combined") {
  const std::string few = "setp.lt.u32 %p1, %r30, 8; setp.lt.u32 %p2, %r30, 12;";
  check_lanes(few + "selp.b32 %r0, 5, 6, %p1;", [](uint64_t l) { return l < 8 ? 5 : 6; });
  check_lanes(few + "selp.b64 %rd0, 0x500000000, 6, %p1;",
              [](uint64_t l) { return l < 8 ? 0x500000000 : 6; });
  check_lanes(few + "selp.f32 %f0, 0f3F800000, 0f40000000, %p1; mov.b32 %r0, %f0;",
              [](uint64_t l) { return l < 8 ? 0x3F800000 : 0x40000000; });
  check_lanes(few + "selp.u16 %rs0, 5, 6, %p1; cvt.u32.u16 %r0, %rs0;",
              [](uint64_t l) { return l < 8 ? 5 : 6; });
  const std::string show = "selp.u32 %r0, 1, 0, %p3;";
  check_lanes(few + "and.pred %p3, %p1, %p2;" + show, [](uint64_t l) { return l < 8; });
  check_lanes(few + "or.pred %p3, %p1, %p2;" + show, [](uint64_t l) { return l < 12; });
  check_lanes(few + "xor.pred %p3, %p1, %p2;" + show, [](uint64_t l) { return l >= 8 && l < 12; });
  check_lanes(few + "mov.pred %p3, %p1;" + show, [](uint64_t l) { return l < 8; });
}

TEST_CASE("barriers count and combine the predicates of a block, and arrivals do not block") {
  const std::string few = "setp.lt.u32 %p1, %r30, 5;", show = "selp.u32 %r0, 1, 0, %p2;";
  check_lanes(few + "bar.red.popc.u32 %r0, 0, %p1;", [](uint64_t) { return 5; });
  check_lanes(few + "bar.red.and.pred %p2, 0, %p1;" + show, [](uint64_t) { return 0; });
  check_lanes(few + "bar.red.or.pred %p2, 0, %p1;" + show, [](uint64_t) { return 1; });
  // The second warp only arrives; the first then reads what it wrote.
  const auto results = run_ptx(R"(
    and.b32 %r1, %r30, 31;
    mad.lo.u32 %r1, %r1, 4, 0;
    mov.u32 %r2, tile;
    add.u32 %r1, %r1, %r2;
    setp.ge.u32 %p1, %r30, 32;
    @%p1 st.shared.b32 [%r1], %r30;
    @%p1 bar.arrive 1, 64;
    @%p1 bra DONE;
    bar.sync 1, 64;
    ld.shared.u32 %r0, [%r1];
  DONE:
  )",
                               64);
  for (uint64_t lane = 0; lane < 32; ++lane) CHECK(results[lane] == lane + 32);
}

TEST_CASE("waits and fences do not change values") {
  check_forms({{"mov.u32 %r0, 7; nanosleep.u32 100;", 7}, {"mov.u32 %r0, 7; membar.gl;", 7}});
}
