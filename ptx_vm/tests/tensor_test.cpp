// Tensor-core instructions: the layout of their operands, their results, and that only a whole warp may
// execute them.

#include <bit>
#include <functional>
#include <set>

#include "ptx_vm/hw/fragments.h"
#include "ptx_vm/numbers.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/opcode_check.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

using PlaceOf = std::function<FragmentPlace(uint32_t row, uint32_t column)>;

// Elements do not overlap, and together they fill the registers.
void check_bijection(uint32_t rows, uint32_t columns, uint32_t registers, uint32_t halves,
                     const PlaceOf& place_of) {
  std::set<uint32_t> taken;
  for (uint32_t row = 0; row < rows; ++row)
    for (uint32_t column = 0; column < columns; ++column) {
      const FragmentPlace at = place_of(row, column);
      CHECK(at.lane < 32);
      CHECK(at.reg < registers);
      CHECK(at.half < halves);
      CHECK(taken.insert((at.lane * registers + at.reg) * halves + at.half).second);
    }
  CHECK(taken.size() == 32 * registers * halves);
}

FragmentPlace in_matrix(uint32_t row, uint32_t column) { return place_in_matrix(0, row, column, false); }
FragmentPlace in_transposed(uint32_t row, uint32_t column) { return place_in_matrix(0, row, column, true); }

// PTX that sets a register to a different value in every lane.
std::string per_lane(const std::string& name, const std::vector<uint32_t>& values) {
  std::string text;
  for (uint32_t lane = 0; lane < 32; ++lane)
    text += str("setp.eq.u32 %p9, %r30, ", lane, "; @%p9 mov.b32 ", name, ", ", values[lane], ";\n");
  return text;
}

// The registers of an operand whose elements have these 16-bit patterns.
std::vector<std::vector<uint32_t>> packed(uint32_t rows, uint32_t columns, const PlaceOf& place_of,
                                          const std::function<uint16_t(uint32_t, uint32_t)>& bits_of) {
  std::vector<std::vector<uint32_t>> registers(rows * columns / 64, std::vector<uint32_t>(32));
  for (uint32_t row = 0; row < rows; ++row)
    for (uint32_t column = 0; column < columns; ++column) {
      const FragmentPlace at = place_of(row, column);
      registers[at.reg][at.lane] |= static_cast<uint32_t>(bits_of(row, column)) << (16 * at.half);
    }
  return registers;
}

// Small integers, so that products and sums are exact; no two rows or columns alike.
float a_value(uint32_t row, uint32_t k) { return static_cast<float>((row * 5 + k * 3 + row * k) % 11) - 4; }
float b_value(uint32_t k, uint32_t column) { return static_cast<float>((k * 7 + column * 2) % 13) - 6; }
float c_value(uint32_t row, uint32_t column) { return static_cast<float>(row * 100 + column); }

std::string names(const char* prefix, size_t first, size_t count) {
  std::string list = "{";
  for (size_t i = 0; i < count; ++i) list += str(i ? ", " : "", prefix, first + i);
  return list + "}";
}

// mma of the values above with the results %f1 ... %f4.
template <class T>
std::string product_of_values(uint32_t depth, const char* type) {
  const auto a = packed(16, depth, place_in_a,
                        [](uint32_t row, uint32_t k) { return from_float<T>(a_value(row, k)).bits; });
  const auto b = packed(depth, 8, place_in_b,
                        [](uint32_t k, uint32_t column) { return from_float<T>(b_value(k, column)).bits; });
  std::string body;
  for (size_t i = 0; i < a.size(); ++i) body += per_lane(str("%r", 1 + i), a[i]);
  for (size_t i = 0; i < b.size(); ++i) body += per_lane(str("%r", 11 + i), b[i]);
  for (uint32_t v = 0; v < 4; ++v) {
    std::vector<uint32_t> c(32);
    for (uint32_t row = 0; row < 16; ++row)
      for (uint32_t column = 0; column < 8; ++column)
        if (const FragmentPlace at = place_in_accumulator(row, column); at.reg == v)
          c[at.lane] = std::bit_cast<uint32_t>(c_value(row, column));
    body += per_lane(str("%f", 1 + v), c);
  }
  return str(body, "mma.sync.aligned.m16n8k", depth, ".row.col.f32.", type, '.', type, ".f32 ",
             names("%f", 1, 4), ", ", names("%r", 1, a.size()), ", ", names("%r", 11, b.size()), ", ",
             names("%f", 1, 4), ";\n");
}

template <class T>
void check_product(uint32_t depth, const char* type) {
  const std::string body = product_of_values<T>(depth, type);
  for (uint32_t v = 0; v < 4; ++v)
    check_lanes(str(body, "mov.b32 %r0, %f", 1 + v, ";"), [&](uint64_t lane) {
      const auto row = static_cast<uint32_t>(lane / 4 + 8 * (v / 2)),
                 column = static_cast<uint32_t>(lane % 4 * 2 + v % 2);
      float sum = c_value(row, column);
      for (uint32_t k = 0; k < depth; ++k) sum += a_value(row, k) * b_value(k, column);
      return std::bit_cast<uint32_t>(sum);
    });
}

// Element e of shared memory, 16 bits each, is e; lane l's row is elements 8 l ... 8 l + 7.
const std::string kCountUp = R"(
    mad.lo.u32 %r1, %r30, 0x80008, 0x10000;
    add.u32 %r2, %r1, 0x20002;
    add.u32 %r3, %r1, 0x40004;
    add.u32 %r4, %r1, 0x60006;
    mov.u32 %r5, tile;
    mad.lo.u32 %r5, %r30, 16, %r5;
    st.shared.v4.b32 [%r5], {%r1, %r2, %r3, %r4};
    bar.warp.sync -1;
)";

uint64_t pair(uint64_t low, uint64_t high) { return high << 16 | low; }

// The finding when this runs on this many threads.
FindingKind finding_of(const std::string& body, uint32_t threads = 32) {
  test::error_of([&] { run_ptx(body, threads); });
  const std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  return found[0].kind;
}

}  // namespace

TEST_CASE("the elements of a fragment fill its registers without overlap") {
  check_bijection(16, 16, 4, 2, place_in_a);
  check_bijection(16, 8, 2, 2, place_in_a);
  check_bijection(16, 8, 2, 2, place_in_b);
  check_bijection(8, 8, 1, 2, place_in_b);
  check_bijection(16, 8, 4, 1, place_in_accumulator);
  check_bijection(16, 64, 32, 1, place_in_accumulator);
  check_bijection(8, 8, 1, 2, in_matrix);
  check_bijection(8, 8, 1, 2, in_transposed);
}

TEST_CASE("fragment elements are where the PTX manual's figures show them") {
  CHECK(place_in_a(5, 3) == FragmentPlace{21, 0, 1});
  CHECK(place_in_a(13, 3) == FragmentPlace{21, 1, 1});
  CHECK(place_in_a(5, 10) == FragmentPlace{21, 2, 0});
  CHECK(place_in_b(3, 2) == FragmentPlace{9, 0, 1});
  CHECK(place_in_b(15, 7) == FragmentPlace{31, 1, 1});
  CHECK(place_in_accumulator(5, 2) == FragmentPlace{21, 0, 0});
  CHECK(place_in_accumulator(15, 7) == FragmentPlace{31, 3, 0});
  CHECK(place_in_accumulator(5, 19) == FragmentPlace{21, 9, 0});
  CHECK(place_in_matrix(2, 1, 3, false) == FragmentPlace{5, 2, 1});
  CHECK(place_in_matrix(2, 3, 1, true) == FragmentPlace{5, 2, 1});
}

TEST_CASE("the accumulators of one product can be the left operand of the next without shuffles") {
  for (uint32_t row = 0; row < 16; ++row)
    for (uint32_t column = 0; column < 16; ++column) {
      const FragmentPlace a = place_in_a(row, column), sum = place_in_accumulator(row, column);
      CHECK(a.lane == sum.lane);
      CHECK(a.reg * 2 + a.half == sum.reg);
    }
}

TEST_CASE("ldmatrix gives every lane two adjacent elements of a row, or of a column") {
  check_lanes(kCountUp + "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r5];",
              [](uint64_t l) { return l == 5 ? 0x000B000A : pair(2 * l, 2 * l + 1); });
  check_lanes(kCountUp + "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%r0}, [%r5];", [](uint64_t l) {
    const uint64_t row = l % 4 * 2, column = l / 4;
    return l == 5 ? 0x00190011 : pair(8 * row + column, 8 * row + 8 + column);
  });
  check_lanes(kCountUp + "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1, %r0}, [%r5];",
              [](uint64_t l) { return pair(64 + 2 * l, 65 + 2 * l); });
  for (uint64_t m = 0; m < 4; ++m) {
    const std::string result = str("mov.u32 %r0, %r", 10 + m, ";");
    check_lanes(
        kCountUp + "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r10, %r11, %r12, %r13}, [%r5];" + result,
        [&](uint64_t l) { return pair(64 * m + 2 * l, 64 * m + 2 * l + 1); });
    check_lanes(
        kCountUp + "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r10, %r11, %r12, %r13}, [%r5];" + result,
        [&](uint64_t l) {
          const uint64_t at = 64 * m + l % 4 * 16 + l / 4;
          return pair(at, at + 8);
        });
  }
}

TEST_CASE("ldmatrix reads rows from arbitrary addresses, also all from one") {
  // Row r of the matrix is row 7 - r of the tile, or always row 2.
  check_lanes(kCountUp +
                  "sub.u32 %r6, 112, %r5; mov.u32 %r7, tile; add.u32 %r6, %r6, %r7; "
                  "add.u32 %r6, %r6, %r7; "
                  "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r6];",
              [](uint64_t l) { return pair(8 * (7 - l / 4) + l % 4 * 2, 8 * (7 - l / 4) + l % 4 * 2 + 1); });
  check_lanes(kCountUp + "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r0}, [tile+32];",
              [](uint64_t l) { return pair(16 + l % 4 * 2, 16 + l % 4 * 2 + 1); });
}

TEST_CASE("stmatrix is the inverse of ldmatrix") {
  const std::string setup = R"(
    mov.u32 %r5, tile;
    mad.lo.u32 %r6, %r30, 16, %r5;
    mad.lo.u32 %r7, %r30, 4, %r5;
    mad.lo.u32 %r1, %r30, 0x20002, 0x10000;
    add.u32 %r2, %r1, 0x400040;
    add.u32 %r3, %r1, 0x800080;
    add.u32 %r4, %r1, 0xC000C0;
  )";  // lane l's register m: elements 64 m + 2 l and the next
  check_lanes(setup +
                  "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r6], {%r1}; bar.warp.sync -1; "
                  "ld.shared.u32 %r0, [%r7];",
              [](uint64_t l) { return pair(2 * l, 2 * l + 1); });
  check_lanes(setup +
                  "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r6], {%r1, %r2}; bar.warp.sync -1; "
                  "ld.shared.u32 %r0, [%r7+128];",
              [](uint64_t l) { return pair(64 + 2 * l, 65 + 2 * l); });
  check_lanes(setup +
                  "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%r6], {%r1, %r2, %r3, %r4}; "
                  "bar.warp.sync -1; ld.shared.u32 %r0, [%r7+384];",
              [](uint64_t l) {
                // Word l of the matrix: row l / 4, columns 2 (l % 4) and the next; element (row, column) is 8
                // column + row.
                const uint64_t at = 192 + 8 * (l % 4 * 2) + l / 4;
                return pair(at, at + 8);
              });
}

TEST_CASE("one nonzero element in each factor gives one nonzero element of the product") {
  // A(5,3) = 1 in lane 21, the upper half of register 0; B(3,2) = 1 in lane 9, the same; D(5,2) in lane 21.
  check_lanes(R"(
    mov.u32 %r1, 0; mov.u32 %r2, 0; mov.f32 %f1, 0f00000000;
    setp.eq.u32 %p1, %r30, 21; @%p1 mov.u32 %r1, 0x3F800000;
    setp.eq.u32 %p2, %r30, 9; @%p2 mov.u32 %r2, 0x3F800000;
    mov.u32 %r3, 0;
    mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f2, %f3, %f4, %f5}, {%r1, %r3, %r3, %r3},
      {%r2, %r3}, {%f1, %f1, %f1, %f1};
    mov.b32 %r4, %f2; mov.b32 %r5, %f3; mov.b32 %r6, %f4; mov.b32 %r7, %f5;
    cvt.u64.u32 %rd1, %r4;
    or.b32 %r5, %r5, %r6; or.b32 %r5, %r5, %r7;
    cvt.u64.u32 %rd2, %r5; shl.b64 %rd2, %rd2, 32;
    or.b64 %rd0, %rd1, %rd2;
  )",
              [](uint64_t l) { return l == 21 ? 0x3F800000 : 0; });
}

TEST_CASE("products of matrices equal three loops, in both types and depths") {
  for (const bool in_pairs : {false, true}) {
    const ScopedOptions scope({.pairwise_mma = in_pairs});
    check_product<BFloat>(16, "bf16");
    check_product<BFloat>(8, "bf16");
    check_product<Half>(16, "f16");
    check_product<Half>(8, "f16");
    // Sixteen products of ones, and two.
    check_lanes(R"(
      mov.u32 %r1, 0x3C003C00;
      mov.f32 %f1, 0f40000000;
      mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f2, %f3, %f4, %f0}, {%r1, %r1, %r1, %r1},
          {%r1, %r1}, {%f1, %f1, %f1, %f1};
      cvt.rzi.u32.f32 %r0, %f0;)",
                [](uint64_t) { return 18; });
  }
}

TEST_CASE("products are summed in the order of k, or in pairs if requested") {
  // 2^24 + 1 + 1: a sum in order loses both ones.
  const std::string body = R"(
    mov.u32 %r1, 0x3F803F80; mov.u32 %r2, 0; mov.f32 %f1, 0f4B800000;
    and.b32 %r3, %r30, 3; setp.ne.u32 %p1, %r3, 0; @%p1 mov.u32 %r1, 0;
    mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f2, %f3, %f4, %f5}, {%r1, %r1}, {%r1},
      {%f1, %f1, %f1, %f1};
    mov.b32 %r0, %f5;
  )";
  check_lanes(body, [](uint64_t) { return 0x4B800000; });
  const ScopedOptions scope({.pairwise_mma = true});
  CHECK(describe(options()).ends_with(" PTX_VM_MMA=pairs"));
  check_lanes(body, [](uint64_t) { return 0x4B800001; });
}

TEST_CASE("warp-wide instructions with diverged, exited or missing lanes are found") {
  const std::string load = "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r5];";
  CHECK(finding_of(kCountUp + "setp.lt.u32 %p1, %r30, 16; @%p1 " + load) == FindingKind::divergent_warp);
  CHECK(finding_of(kCountUp + "setp.lt.u32 %p1, %r30, 16; @%p1 exit; " + load) ==
        FindingKind::divergent_warp);
  CHECK(finding_of(kCountUp + load, 48) == FindingKind::divergent_warp);
}

TEST_CASE("matrix rows are checked like other accesses") {
  const std::string load = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r0}, ";
  CHECK(finding_of(kCountUp + load + "[%r5+8];") == FindingKind::misaligned_access);
  CHECK(finding_of(kCountUp + load + "[%r5+16];") == FindingKind::uninitialised_read);
  CHECK(finding_of(kCountUp + load + "[%r5+1024];") == FindingKind::out_of_bounds);
  CHECK(finding_of(kCountUp + "xor.b32 %r6, %r5, 16; " + load + "[%r6]; st.shared.u16 [%r5], 1;") ==
        FindingKind::warp_race);
}

TEST_CASE("unsupported forms of tensor instructions are errors") {
  const auto error = [](const std::string& body) { return test::error_of([&] { run_ptx(body); }); };
  CHECK(error("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%r1, %r2}, {%r1, %r2, %r3, %r4}, "
              "{%r1, %r2}, {%r1, %r2};")
            .find("only .f32.bf16.bf16.f32 and .f32.f16.f16.f32 are supported") != std::string::npos);
  CHECK(error("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, "
              "{%r1, %r2}, {%r1, %r2, %r3, %r4};")
            .find("only .sync.aligned.m16n8k16 and .m16n8k8") != std::string::npos);
  CHECK(error("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, "
              "{%r1, %r2}, {%f1, %f2, %f3, %f4};")
            .find("operand 3 has 2 registers, not 1") != std::string::npos);
  CHECK(error("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r1}, [tile];").find("1 registers for .x2") !=
        std::string::npos);
  CHECK(error("ldmatrix.sync.aligned.m8n8.x1.b16 {%r1}, [%rd1];").find("only .shared is supported") !=
        std::string::npos);
}
