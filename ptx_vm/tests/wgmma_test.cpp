// wgmma: its products equal sums over k, and conflicting accesses are found.

#include <algorithm>

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/registry.h"
#include "ptx_vm/tests/run_ptx.h"
#include "ptx_vm/tests/wgmma_tile.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

// One product, of a warpgroup: operands are small whole numbers, so that sums are exact in any order.
struct Product {
  uint32_t columns = 8;
  bool is_half = false;
  Swizzle swizzle = Swizzle::bytes_128;  // of both
  bool a_in_registers = false, transposed_a = false, transposed_b = false;
  bool adds = true;  // to D
  int sign_a = 1, sign_b = 1;
};

constexpr uint32_t kThreads = 128, kStartB = 8192, kOperandBytes = 40960;

int32_t operand_at(uint32_t byte) {
  const uint32_t i = byte / 2;
  return static_cast<int32_t>((i * 37 + i / 8) & 15) - 7;
}

// Fills shared memory with operand_at; its address is in %r4, and the registers of A are %a.
std::string fill(const Product& p) {
  std::string text = str(R"(
    .shared .align 1024 .b8 operands[)",
                         kOperandBytes, R"(];
    .reg .f32 %acc<128>;
    .reg .b32 %a<4>;
    mov.u32 %r1, %r30;
    mov.u32 %r4, operands;
  FILL:
    mul.lo.u32 %r2, %r1, 37;
    shr.u32 %r3, %r1, 3;
    add.u32 %r2, %r2, %r3;
    and.b32 %r2, %r2, 15;
    sub.s32 %r2, %r2, 7;
    cvt.rn.f32.s32 %f1, %r2;
    cvt.rn.)",
                         p.is_half ? "f16" : "bf16", R"(.f32 %rs1, %f1;
    shl.b32 %r3, %r1, 1;
    add.u32 %r3, %r3, %r4;
    st.shared.b16 [%r3], %rs1;
    add.u32 %r1, %r1, 128;
    setp.lt.u32 %p1, %r1, )",
                         kOperandBytes / 2, R"(;
    @%p1 bra FILL;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    and.b32 %r5, %r30, 3;
    shr.u32 %r6, %r30, 5;
    bfe.u32 %r7, %r30, 2, 3;
    mad.lo.u32 %r7, %r6, 16, %r7;
    mul.lo.u32 %r7, %r7, 32;
    mad.lo.u32 %r7, %r5, 4, %r7;
    add.u32 %r7, %r7, %r4;
)");
  for (uint32_t i = 0; i < 4; ++i)
    text += str("ld.shared.b32 %a", i, ", [%r7+", (i & 1) * 8 * 32 + (i >> 1) * 16, "];\n");
  return text;
}

// %acc<v> = v - thread % 4 to begin with.
std::string start_sums(uint32_t count) {
  std::string text = "cvt.rn.f32.s32 %f1, %r5; neg.f32 %f1, %f1;\n";
  for (uint32_t v = 0; v < count; ++v)
    text += str("mov.u32 %r8, ", v, "; cvt.rn.f32.s32 %f2, %r8; add.f32 %acc", v, ", %f1, %f2;\n");
  return text;
}

std::string registers(const char* name, uint32_t count) {
  std::string text = "{";
  for (uint32_t i = 0; i < count; ++i) text += str(i ? ", " : "", name, i);
  return text + "}";
}

// A tile whose address is %r4 and the descriptor's start.
std::string put_descriptor(const char* name, const MatrixDescriptor& m) {
  return str("shr.u32 %r8, %r4, 4; cvt.u64.u32 ", name, ", %r8; add.u64 ", name, ", ", name, ", ",
             static_cast<int64_t>(pack(m)), ";\n");
}

MatrixDescriptor descriptor_a(const Product& p) { return packed(p.swizzle, p.transposed_a, 64); }
MatrixDescriptor descriptor_b(const Product& p) {
  MatrixDescriptor m = packed(p.swizzle, p.transposed_b, p.columns);
  m.start = kStartB;
  return m;
}

std::string instruction(const Product& p) {
  const char* types = p.is_half ? "k16.f32.f16.f16" : "k16.f32.bf16.bf16";
  return str("setp.ne.b32 %p2, ", p.adds, ", 0;\nwgmma.mma_async.sync.aligned.m64n", p.columns, types, ' ',
             registers("%acc", p.columns / 2), ", ", p.a_in_registers ? registers("%a", 4) : "%rd1",
             ", %rd2, %p2, ", p.sign_a, ", ", p.sign_b,
             p.a_in_registers ? ""
             : p.transposed_a ? ", 1"
                              : ", 0",
             p.transposed_b ? ", 1" : ", 0", ";\n");
}

// %r0 = a hash of all sums, each as a whole number.
std::string hash_sums(uint32_t count) {
  std::string text;
  for (uint32_t v = 0; v < count; ++v)
    text += str("cvt.rzi.s32.f32 %r8, %acc", v, "; mad.lo.s32 %r0, %r0, 31, %r8;\n");
  return text;
}

std::string whole(const Product& p) {
  return fill(p) + put_descriptor("%rd1", descriptor_a(p)) + put_descriptor("%rd2", descriptor_b(p)) +
         start_sums(p.columns / 2) + "wgmma.fence.sync.aligned;\n" + instruction(p) +
         "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n" + hash_sums(p.columns / 2);
}

std::vector<uint64_t> expected(const Product& p) {
  std::vector<uint64_t> hashes(kThreads);
  for (uint32_t thread = 0; thread < kThreads; ++thread) {
    uint32_t hash = 0;
    for (uint32_t v = 0; v < p.columns / 2; ++v) {
      const uint32_t lane = thread % 32, row = thread / 32 * 16 + lane / 4 + 8 * (v >> 1 & 1),
                     column = v / 4 * 8 + lane % 4 * 2 + (v & 1);
      int32_t sum = p.adds ? static_cast<int32_t>(v) - static_cast<int32_t>(thread % 4) : 0;
      for (uint32_t k = 0; k < 16; ++k) {
        const uint32_t a =
            p.a_in_registers ? row * 32 + k * 2 : element_address(descriptor_a(p), p.transposed_a, row, k);
        const uint32_t b = element_address(descriptor_b(p), p.transposed_b, column, k);
        sum += p.sign_a * p.sign_b * operand_at(a) * operand_at(b);
      }
      hash = hash * 31 + static_cast<uint32_t>(sum);
    }
    hashes[thread] = hash;
  }
  return hashes;
}

// The same under every schedule and at every time that products may run.
std::vector<Options> timings() {
  std::vector<Options> all;
  for (const Schedule schedule :
       {Schedule::in_order, Schedule::reverse, Schedule::round_robin, Schedule::random})
    for (const AsyncTiming async : {AsyncTiming::early, AsyncTiming::late, AsyncTiming::random})
      all.push_back({.schedule = schedule, .seed = 3, .async = async});
  return all;
}

// Found under every timing, as this kind, at the line that one of `at` begins.
void check_found(const std::string& body, FindingKind kind, const std::vector<std::string>& at,
                 uint32_t threads = kThreads) {
  CAPTURE(body);
  std::vector<std::string> lines;
  for (const std::string& text : at) {
    REQUIRE(body.find(text) != std::string::npos);
    constexpr int kFirstLine = 11;  // of a body
    const auto end = body.begin() + static_cast<ptrdiff_t>(body.find(text));
    lines.push_back(str("PTX line ", kFirstLine + std::count(body.begin(), end, '\n')));
  }
  for (const Options& timing : timings()) {
    const ScopedOptions scope(timing);
    CAPTURE(describe(timing));
    test::error_of([&] { run_ptx(body, threads); });
    const std::vector<Finding> found = take_findings();
    REQUIRE(found.size() == 1);
    CAPTURE(found[0].text);
    CHECK(found[0].kind == kind);
    CHECK(std::find(lines.begin(), lines.end(), found[0].where) != lines.end());
  }
}

std::string replaced(std::string body, std::string_view from, std::string_view to) {
  REQUIRE(body.find(from) != std::string::npos);
  return body.replace(body.find(from), from.size(), to);
}

void check_product(const Product& p) {
  const std::string body = whole(p);
  CAPTURE(body);
  CHECK(run_ptx(body, kThreads) == expected(p));
}

}  // namespace

TEST_CASE("a warpgroup product equals sums over k, in every operand layout") {
  for (const Swizzle s : kSwizzles)
    for (const bool transposed_a : {false, true})
      for (const bool transposed_b : {false, true})
        check_product(
            {.columns = 64, .swizzle = s, .transposed_a = transposed_a, .transposed_b = transposed_b});
}

TEST_CASE("products support A in registers, every number of columns, signs and both types") {
  CHECK(instruction({.columns = 128}).find("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {") !=
        std::string::npos);
  check_product({.columns = 128});
  check_product({.columns = 8});
  check_product({.columns = 24, .a_in_registers = true});
  check_product({.columns = 136, .is_half = true, .a_in_registers = true, .transposed_b = true});
  check_product({.columns = 256, .adds = false});
  check_product({.columns = 256, .is_half = true, .swizzle = Swizzle::bytes_64, .sign_a = -1});
  check_product({.columns = 32, .swizzle = Swizzle::none, .adds = false, .sign_b = -1});
  check_product({.columns = 16, .a_in_registers = true, .sign_a = -1, .sign_b = -1});
}

TEST_CASE("products give the same sums under every schedule and timing") {
  const Product p{.columns = 64, .a_in_registers = true};
  std::string body = whole(p);  // three products in two groups, on the same accumulators
  const std::string one = instruction(p);
  body = replaced(body, one, one + "wgmma.commit_group.sync.aligned;\n" + one + one);
  const std::vector<uint64_t> sums = run_ptx(body, kThreads);
  for (const Options& timing : timings()) {
    const ScopedOptions scope(timing);
    CAPTURE(describe(timing));
    CHECK(run_ptx(body, kThreads) == sums);
  }
}

TEST_CASE("accessing a product's registers before wgmma.wait_group is a finding") {
  using enum FindingKind;
  const Product p{.columns = 16, .a_in_registers = true};
  const std::string body = whole(p), wait = "wgmma.wait_group.sync.aligned 0;\n",
                    first = "cvt.rzi.s32.f32 %r8, %acc0;";
  check_found(replaced(body, wait, "wgmma.wait_group.sync.aligned 1;\n"), in_flight_register, {first});
  check_found(replaced(body, "wgmma.commit_group.sync.aligned;\n", ""), in_flight_register, {first});
  check_found(replaced(body, wait, "mov.b32 %a2, 0;\n" + wait), in_flight_register, {"mov.b32 %a2, 0;"});
  const std::string other = instruction({.columns = 8, .a_in_registers = true});
  check_found(replaced(body, wait, other + wait), in_flight_register,
              {"wgmma.mma_async.sync.aligned.m64n8k16"});
}

TEST_CASE("writing a product's registers without a later wgmma.fence is a finding") {
  using enum FindingKind;
  const Product p{.columns = 16, .a_in_registers = true};
  const std::string body = whole(p), fence = "wgmma.fence.sync.aligned;\n", product = "wgmma.mma_async";
  check_found(replaced(body, fence, ""), missing_wgmma_fence, {product});
  check_found(replaced(body, fence, fence + "mov.f32 %acc3, 0f00000000;\n"), missing_wgmma_fence, {product});
  check_found(replaced(body, fence, fence + "add.s32 %a1, %a1, 0;\n"), missing_wgmma_fence, {product});
}

TEST_CASE("overwriting a product's shared-memory operands before the wait is a finding") {
  using enum FindingKind;
  const std::string body = whole({.columns = 16, .adds = false}),
                    commit = "wgmma.commit_group.sync.aligned;\n";
  // Another warp writes to A or B, after a barrier but before the wait. The second of the two to run reports
  // it.
  const std::string overwrite =
      "bar.sync 0; shl.b32 %r9, %r30, 2; add.u32 %r9, %r9, %r4; st.shared.u32 [%r9+8192], 0;";
  const std::string early = replaced(body, commit, commit + overwrite);
  for (const AsyncTiming async : {AsyncTiming::early, AsyncTiming::late}) {
    const ScopedOptions scope({.async = async});
    test::error_of([&] { run_ptx(early, kThreads); });
    const std::vector<Finding> found = take_findings();
    REQUIRE(found.size() == 1);
    CHECK(found[0].kind == async_race);
  }
  const std::string wait = "wgmma.wait_group.sync.aligned 0;\n";
  for (const Options& timing : timings()) {
    const ScopedOptions scope(timing);
    CHECK(run_ptx(replaced(body, wait, wait + overwrite), kThreads) == run_ptx(body, kThreads));
  }
  check_found(replaced(body, "setp.lt.u32 %p1, %r1, ",
                       "setp.lt.u32 %p1, %r1, 4097; @%p1 bra FILL; setp.gt.u32 %p1, %r1, "),
              uninitialised_read, {"wgmma.mma_async"});
}

TEST_CASE("a product may read a thread's stores only after that thread's fence.proxy.async") {
  using enum FindingKind;
  const std::string body = whole({.columns = 16}), fence = "fence.proxy.async.shared::cta;\n",
                    product = "wgmma.mma_async";
  check_found(replaced(body, fence, ""), missing_proxy_fence, {product});
  check_found(replaced(body, fence, "setp.eq.u32 %p3, %r30, 0;\n@%p3 fence.proxy.async;\n"),
              missing_proxy_fence, {product});
  check_found(replaced(body, fence + "    bar.sync 0;", "bar.sync 0;\n" + fence), missing_proxy_fence,
              {product});
  check_found(
      replaced(body, fence, fence + "shl.b32 %r9, %r30, 1; add.u32 %r9, %r9, %r4; st.shared.u16 [%r9], 0;\n"),
      missing_proxy_fence, {product});
  const std::string everywhere = replaced(body, fence, "fence.proxy.async;\n");
  CHECK(run_ptx(everywhere, kThreads) == run_ptx(body, kThreads));
}

TEST_CASE("a matrix descriptor must be equal in all lanes and start at its pattern") {
  using enum FindingKind;
  const std::string body = whole({.columns = 16}), fence = "wgmma.fence.sync.aligned;\n",
                    product = "wgmma.mma_async";
  const auto broken = [&](const std::string& change) { return replaced(body, fence, change + fence); };
  check_found(broken("add.u64 %rd1, %rd1, 32;\n"), matrix_descriptor, {product});  // 512 bytes on
  check_found(broken("or.b64 %rd2, %rd2, 562949953421312;\n"), matrix_descriptor,
              {product});  // a base offset
  check_found(broken("or.b64 %rd2, %rd2, 16384;\n"), matrix_descriptor, {product});
  check_found(broken("cvt.u64.u32 %rd3, %r30; add.u64 %rd1, %rd1, %rd3;\n"), matrix_descriptor, {product});
  check_found(broken("or.b64 %rd2, %rd2, 16320;\n"), out_of_bounds, {product});
}

TEST_CASE("the four warps of a warpgroup must execute the same instructions") {
  using enum FindingKind;
  const std::string body = whole({.columns = 16}), commit = "wgmma.commit_group.sync.aligned;\n",
                    product = "wgmma.mma_async";
  const std::string fence = "wgmma.fence.sync.aligned;\n";
  check_found(replaced(body, commit, commit + "setp.eq.u32 %p3, %r6, 2;\n@%p3 " + commit),
              divergent_warpgroup, {"@%p3 wgmma.commit_group", "wgmma.wait_group"});
  check_found(replaced(body, fence,
                       "cvt.u64.u32 %rd3, %r6; shl.b64 %rd3, %rd3, 1; add.u64 %rd1, %rd1, %rd3;\n" + fence),
              divergent_warpgroup, {product});
  check_found(replaced(body, "setp.ne.b32 %p2, 1, 0;", "setp.eq.u32 %p2, %r6, 2;"), divergent_warpgroup,
              {product});
  check_found(replaced(body, product,
                       "and.b32 %r9, %r30, 31;\nsetp.lt.u32 %p3, %r9, 20;\n@%p3 " + std::string(product)),
              divergent_warp, {"@%p3 wgmma"});
  test::error_of([&] { run_ptx(fence, 96); });
  const std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  CHECK(found[0].kind == divergent_warpgroup);
}

TEST_CASE("warpgroups redistribute registers within the block's initial allocation") {
  const ScopedOptions newer({.arch = 90});
  using enum FindingKind;
  // 384 threads begin with 168 registers each: as many as 24 of one warpgroup and 240 of two.
  const std::string body = R"(
    setp.lt.u32 %p1, %r30, 128;
    @%p1 bra PRODUCER;
    setmaxnreg.inc.sync.aligned.u32 240;
    bra.uni DONE;
  PRODUCER:
    setmaxnreg.dec.sync.aligned.u32 24;
  DONE:
    mov.u32 %r0, 7;
)",
                    increase = "setmaxnreg.inc.sync.aligned.u32 240;",
                    decrease = "setmaxnreg.dec.sync.aligned.u32 24;";
  constexpr uint32_t kAll = 384;
  for (const Options& timing : timings()) {
    const ScopedOptions scope(timing);
    CHECK(run_ptx(body, kAll) == std::vector<uint64_t>(kAll, 7));
  }
  check_found(replaced(body, decrease, "setmaxnreg.dec.sync.aligned.u32 32;"), register_pool, {increase},
              kAll);
  check_found(replaced(body, decrease, ""), register_pool, {increase}, kAll);
  check_found(replaced(body, decrease, "setmaxnreg.inc.sync.aligned.u32 24;"), register_pool,
              {"setmaxnreg.inc.sync.aligned.u32 24;"}, kAll);
  check_found(replaced(body, increase, "setmaxnreg.dec.sync.aligned.u32 240;"), register_pool,
              {"setmaxnreg.dec.sync.aligned.u32 240;"}, kAll);
  check_found(replaced(body, decrease, "shr.u32 %r6, %r30, 5;\nsetp.ne.u32 %p2, %r6, 2;\n@%p2 " + decrease),
              divergent_warpgroup, {"@%p2 setmaxnreg"}, kAll);
  const std::string odd = replaced(body, decrease, "setmaxnreg.dec.sync.aligned.u32 236;");
  CHECK(test::error_of([&] { run_ptx(odd, kAll); }).find("236 registers, must be a multiple of 8") !=
        std::string::npos);
  const void* stub = register_ptx(
      ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry test() {\n" + decrease + " ret; }");
  CHECK(test::error_of([&] { kernel_of(stub); }).find("without .maxntid and .minnctapersm") !=
        std::string::npos);
}
