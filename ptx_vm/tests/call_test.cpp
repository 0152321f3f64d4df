// Device functions, and printf, assertions and clocks of kernels.

#include <cstdio>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/language.h"
#include "ptx_vm/tests/run_ptx.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

const char* const kFunctions = R"(
.func (.param .b32 result) triple(.param .b32 x) {
  .reg .b32 %r<4>;
  ld.param.u32 %r1, [x];
  mul.lo.u32 %r2, %r1, 3;
  st.param.b32 [result], %r2;
  ret;
}
.func (.param .b32 result) half_or_triple(.param .b32 x) {
  .reg .b32 %r<4>;
  .reg .pred %p<2>;
  ld.param.u32 %r1, [x];
  and.b32 %r2, %r1, 1;
  setp.eq.u32 %p1, %r2, 1;
  @%p1 bra ODD;
  shr.u32 %r3, %r1, 1;
  st.param.b32 [result], %r3;
  ret;
ODD:
  { .param .b32 a; .param .b32 b;
    st.param.b32 [a], %r1;
    call.uni (b), triple, (a);
    ld.param.b32 %r3, [b]; }
  st.param.b32 [result], %r3;
}
.func leave_some(.param .b32 x) {
  .reg .b32 %r<2>;
  .reg .pred %p<1>;
  ld.param.u32 %r1, [x];
  setp.lt.u32 %p0, %r1, 10;
  @%p0 exit;
  ret;
}
.func (.param .align 8 .b8 result[16]) swapped(.param .align 8 .b8 x[16]) {
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [x+8];
  st.param.u64 [result], %rd2;
  st.param.u64 [result+8], %rd1;
  ret;
}
.func nothing() {
  ret;
}
.func (.param .b32 result) forever(.param .b32 x) {
  .param .b32 a;
  call.uni (result), forever, (x);
  ret;
}
)";

std::string error_of_call(const std::string& body) {
  return test::error_of([&] { run_ptx(body, 32, kFunctions); });
}

// What `work` prints to stdout.
template <class Work>
std::string printed_by(Work&& work) {
  std::fflush(stdout);
  const int before = dup(STDOUT_FILENO);
  REQUIRE(std::freopen("printed.txt", "w", stdout) != nullptr);
  work();
  std::fflush(stdout);
  dup2(before, STDOUT_FILENO);
  close(before);
  std::ostringstream text;
  text << std::ifstream("printed.txt").rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("a call passes arguments and returns a result for the calling lanes") {
  const std::vector<uint64_t> results = run_ptx(R"(
    .reg .pred %q;
    setp.lt.u32 %q, %r30, 20;
    @!%q bra JOIN;
    { .param .b32 a; .param .b32 b;
      st.param.b32 [a], %r30;
      call.uni (b), half_or_triple, (a);
      ld.param.b32 %r0, [b]; }
  JOIN:
    activemask.b32 %r2;
    setp.eq.u32 %p1, %r2, -1;
    selp.u32 %r0, %r0, 99, %p1;
  )",
                                                32, kFunctions);
  for (uint64_t lane = 0; lane < 32; ++lane) {
    CAPTURE(lane);
    CHECK(results[lane] == (lane >= 20 ? 0 : lane % 2 ? 3 * lane : lane / 2));
  }
}

TEST_CASE("calls work in loops, under predicates, with structs and without results") {
  // x = 3 x, five times; then only in even lanes.
  const std::vector<uint64_t> loop = run_ptx(R"(
    mov.u32 %r0, 1;
    mov.u32 %r1, 0;
  AGAIN:
    { .param .b32 a; .param .b32 b;
      st.param.b32 [a], %r0;
      call.uni (b), triple, (a);
      ld.param.b32 %r0, [b]; }
    add.u32 %r1, %r1, 1;
    setp.lt.u32 %p0, %r1, 5;
    @%p0 bra AGAIN;
    and.b32 %r2, %r30, 1;
    setp.eq.u32 %p1, %r2, 0;
    { .param .b32 a; .param .b32 b;
      st.param.b32 [a], %r0;
      st.param.b32 [b], 7;
      @%p1 call (b), triple, (a);
      ld.param.b32 %r0, [b]; }
  )",
                                             32, kFunctions);
  for (uint64_t lane = 0; lane < 32; ++lane) CHECK(loop[lane] == (lane % 2 ? 7 : 729));
  const std::vector<uint64_t> pair = run_ptx(R"(
    { .param .align 8 .b8 a[16]; .param .align 8 .b8 b[16];
      st.param.u64 [a], 1;
      st.param.u64 [a+8], 2;
      call.uni (b), swapped, (a);
      ld.param.u64 %rd1, [b];
      ld.param.u64 %rd2, [b+8]; }
    shl.b64 %rd1, %rd1, 8;
    or.b64 %rd0, %rd1, %rd2;
  )",
                                             32, kFunctions);
  CHECK(pair[5] == 0x201);
  CHECK(run_ptx("call.uni nothing; call nothing, (); mov.u32 %r0, 5;", 32, kFunctions)[9] == 5);
  // Lanes that exit in a function do not return to store their result.
  const std::vector<uint64_t> left = run_ptx(
      "{ .param .b32 a; st.param.b32 [a], %r30; call.uni leave_some, (a); } mov.u32 %r0, 4;", 32, kFunctions);
  for (uint64_t lane = 0; lane < 32; ++lane) CHECK(left[lane] == (lane < 10 ? ~uint64_t{0} : 4));
  CHECK(findings().empty());
}

TEST_CASE("calls that cannot be expanded are errors that name their line, before anything runs") {
  const std::string call = "{ .param .b32 a; .param .b32 b; st.param.b32 [a], 1; call.uni (b), ";
  CHECK(error_of_call(call + "forever, (a); }")
            .find("forever calls itself, which is not supported (PTX line ") != std::string::npos);
  CHECK(error_of_call(call + "nobody, (a); }").find("calls of nobody are not supported") !=
        std::string::npos);
  CHECK(error_of_call(call + "triple, (a, a); }").find("a different number of parameters") !=
        std::string::npos);
  CHECK(error_of_call("P: .callprototype (.param .b32 _) _ (.param .b32 _);" + call + "%rd1, (a), P; }")
            .find("calls through pointers are not supported") != std::string::npos);
  CHECK(findings().empty());
}

TEST_CASE("clocks advance") {
  for (const char* clock : {"%clock", "%globaltimer_lo"}) {
    CAPTURE(clock);
    const std::string body = str("mov.u32 %r1, ", clock, "; add.u32 %r3, %r3, 1; mov.u32 %r2, ", clock,
                                 "; setp.gt.u32 %p0, %r2, %r1; selp.u32 %r0, 1, 0, %p0;");
    CHECK(run_ptx("mov.u32 %r3, 0;" + body)[3] == 1);
  }
  for (const char* clock : {"%clock64", "%globaltimer"}) {
    CAPTURE(clock);
    const std::string body = str("mov.u64 %rd1, ", clock, "; add.u32 %r3, %r3, 1; mov.u64 %rd2, ", clock,
                                 "; setp.gt.u64 %p0, %rd2, %rd1; selp.u32 %r0, 1, 0, %p0;");
    CHECK(run_ptx("mov.u32 %r3, 0;" + body)[3] == 1);
  }
  CHECK(run_ptx("mov.u32 %r0, %clock_hi;")[3] == 0);
  CHECK(run_ptx("mov.u32 %r1, %globaltimer_hi; mov.u64 %rd1, %globaltimer; shr.u64 %rd1, %rd1, 32; "
                "cvt.u32.u64 %r2, %rd1; sub.u32 %r0, %r1, %r2;")[3] == 0);
  const uint64_t grid = run_ptx("mov.u64 %rd0, %gridid;")[3];
  CHECK(run_ptx("mov.u64 %rd0, %gridid;")[3] == grid + 1);
}

TEST_CASE("printf of a kernel prints lane by lane") {
  std::string expected;
  for (int lane = 0; lane < 3; ++lane) {
    char line[200];
    std::snprintf(line, sizeof(line), "lane %d: %5.2f|%-6s|%lld|%c|%08x|%3d%%\n", lane, 0.25 * lane, "text",
                  (1LL << 40) + lane, 'a' + lane, 255 - lane, lane);
    expected += line;
  }
  CHECK(printed_by(run_printing) == expected);
  CHECK(take_findings().empty());
}

TEST_CASE("a failing assertion of a kernel is reported with its text and line") {
  run_failing_assertion();
  const std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  CHECK(found[0].kind == FindingKind::trap);
  CHECK(found[0].text.find("not this time") != std::string::npos);
  CHECK(found[0].text.find("language.cu:") != std::string::npos);
  CHECK(found[0].where.find("language.cu:") != std::string::npos);
}

TEST_CASE("an error in a device function is reported with the line of the call") {
  run_failing_function();
  const std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  CHECK(found[0].kind == FindingKind::trap);
  CHECK(found[0].where.find(", called at ") != std::string::npos);
}

TEST_CASE("trap and brkpt end a kernel with a finding") {
  for (const char* opcode : {"trap", "brkpt"}) {
    CHECK_THROWS_AS(run_ptx(str("setp.eq.u32 %p0, %r30, 5; @%p0 ", opcode, ";")), Error);
    const std::vector<Finding> found = take_findings();
    REQUIRE(found.size() == 1);
    CHECK(found[0].kind == FindingKind::trap);
    CHECK(found[0].text.find("lane 5") != std::string::npos);
  }
}
