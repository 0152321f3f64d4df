// ldmatrix stmatrix mma: operations of a whole warp on fragments in its registers

#include <array>
#include <cstring>

#include "ptx_vm/access.h"
#include "ptx_vm/decode.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/hw/fragments.h"
#include "ptx_vm/numbers.h"
#include "ptx_vm/ptx_vm.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr Type kB32{Type::Kind::bits, 4}, kF32{Type::Kind::f, 4};
constexpr size_t kBase = 4;  // the slot of ldmatrix's addresses; its registers come before it
constexpr uint32_t kSide = 8, kRowBytes = 16;  // of one of its matrices

// rows[8 m + r] is the address of row r of matrix m in shared memory.
void find_rows(Warp& warp, const Op& op, Access access, unsigned char** rows) {
  const uint32_t count = kSide * op.count;
  Places places;
  warp.active = count == kLanes ? kAllLanes : (1u << count) - 1;
  resolve(warp, op, op.slot[kBase], kRowBytes, access, &places);
  warp.active = kAllLanes;
  for (uint32_t row = 0; row < count; ++row) rows[row] = places.at(static_cast<int>(row), kRowBytes);
}

using Row = uint16_t __attribute__((vector_size(kRowBytes)));
using Matrix = Row[kSide];

// Three times over, rows of the upper and the lower half are shuffled like two halves of a pack of cards.
void transpose(Matrix& matrix) {
  for (int round = 0; round < 3; ++round) {
    Matrix shuffled;
    for (uint32_t i = 0; i < kSide / 2; ++i) {
      const Row upper = matrix[i], lower = matrix[i + kSide / 2];
      shuffled[2 * i] = __builtin_shufflevector(upper, lower, 0, 8, 1, 9, 2, 10, 3, 11);
      shuffled[2 * i + 1] = __builtin_shufflevector(upper, lower, 4, 12, 5, 13, 6, 14, 7, 15);
    }
    for (uint32_t i = 0; i < kSide; ++i) matrix[i] = shuffled[i];
  }
}

// The elements of a row of a matrix that are adjacent in a register.
uint16_t* row_in_register(const Warp& warp, const Op& op, uint32_t matrix, uint32_t row) {
  const FragmentPlace at = place_in_matrix(matrix, row, 0, false);
  return warp.lanes<uint16_t>(op.slot[at.reg]) + at.lane * 2 + at.half;
}

template <bool kTransposed>
void load_matrices(Warp& warp, const Op& op) {
  unsigned char* rows[kLanes];
  find_rows(warp, op, Access::read, rows);
  for (uint32_t m = 0; m < op.count; ++m) {
    Matrix matrix;
    for (uint32_t row = 0; row < kSide; ++row) std::memcpy(&matrix[row], rows[m * kSide + row], kRowBytes);
    if (kTransposed) transpose(matrix);
    for (uint32_t row = 0; row < kSide; ++row)
      std::memcpy(row_in_register(warp, op, m, row), &matrix[row], kRowBytes);
  }
}

template <bool kTransposed>
void store_matrices(Warp& warp, const Op& op) {
  unsigned char* rows[kLanes];
  find_rows(warp, op, Access::write, rows);
  for (uint32_t m = 0; m < op.count; ++m) {
    Matrix matrix;
    for (uint32_t row = 0; row < kSide; ++row)
      std::memcpy(&matrix[row], row_in_register(warp, op, m, row), kRowBytes);
    if (kTransposed) transpose(matrix);
    for (uint32_t row = 0; row < kSide; ++row) std::memcpy(rows[m * kSide + row], &matrix[row], kRowBytes);
  }
}

void decode_matrices(Decoder& d, bool is_load) {
  Op op;
  op.flow = Flow::whole_warp;
  if (!d.take("sync") || !d.take("aligned") || !d.take("m8n8") || !d.take("b16"))
    d.wrong("only .sync.aligned.m8n8 with .b16 is supported");
  if (!d.take("shared") && !d.take("shared::cta")) d.wrong("only .shared is supported");
  const std::string_view many = d.take_any({"x1", "x2", "x4"});
  op.count = many == "x4" ? 4 : many == "x2" ? 2 : 1;
  if (many.empty()) d.wrong("must be .x1, .x2 or .x4");
  const bool transposed = d.take("trans");
  op.run = is_load ? (transposed ? load_matrices<true> : load_matrices<false>)
                   : (transposed ? store_matrices<true> : store_matrices<false>);
  const std::vector<Operand> registers = d.elements(is_load ? 0 : 1);
  if (registers.size() != op.count) d.wrong(str(registers.size(), " registers for .", many));
  for (size_t i = 0; i < registers.size(); ++i)
    op.slot[i] = is_load ? d.register_of(registers[i], 4) : d.read(registers[i], kB32);
  d.address(op, is_load ? 1 : 0, kBase, Space::shared);
  if (op.space != Space::shared) d.wrong("the address must be in shared memory");
  d.emit(op);
}

using Columns = float __attribute__((vector_size(kSide * sizeof(float))));

template <class T>
Columns to_floats(Row elements) {
  if constexpr (std::is_same_v<T, BFloat>) {
    using Bits = uint32_t __attribute__((vector_size(sizeof(Columns))));
    return std::bit_cast<Columns>(__builtin_convertvector(elements, Bits) << 16);
  } else {
    Columns values;
    for (uint32_t i = 0; i < kSide; ++i) values[i] = to_float(T{elements[i]});
    return values;
  }
}

// Eight elements of an operand that are adjacent in its registers.
template <class T>
Row run_at(T* const* registers, const FragmentPlace& at) {
  Row row;
  std::memcpy(&row, registers[at.reg] + at.lane * 2 + at.half, sizeof(row));
  return row;
}

// sums[row] += the products of row `row` of A with all columns of B: in the order of k, or, to show that
// tolerances do not depend on that order, in pairs first.
template <size_t kRows, size_t kRuns>
void add_products(const Columns (&a)[kRows][kRuns], const Columns* b, bool in_pairs, Columns* sums) {
  for (size_t row = 0; row < kRows; ++row) {
    const float* terms = reinterpret_cast<const float*>(a[row]);
    Columns sum = sums[row];
    if (in_pairs)
      for (size_t k = 0; k < kRuns * kSide; k += 2) sum += terms[k] * b[k] + terms[k + 1] * b[k + 1];
    else
      for (size_t k = 0; k < kRuns * kSide; ++k) sum += terms[k] * b[k];
    sums[row] = sum;
  }
}

// The columns of a row of sums are in register order: even ones, then odd ones.
constexpr uint32_t column_at(uint32_t place) {
  return place < kSide / 2 ? 2 * place : 2 * place - (kSide - 1);
}

// Each half of a row of sums, and its registers.
template <size_t kRows, class Move>
void for_each_half(float* const* registers, Columns (&sums)[kRows], Move&& move) {
  for (uint32_t row = 0; row < kRows; ++row)
    for (uint32_t half = 0; half < 2; ++half) {
      const FragmentPlace at = place_in_accumulator(row, column_at(half * kSide / 2));
      move(reinterpret_cast<float*>(&sums[row]) + half * kSide / 2, registers[at.reg] + at.lane);
    }
}

// D = A B + C with A (16, kDepth), B (kDepth, 8). The op's registers are in a list: D, A, B, C.
template <class T, uint32_t kDepth>
void multiply(Warp& warp, const Op& op) {
  constexpr uint32_t kRows = 16, kSums = 4, kOfA = kDepth / 4, kOfB = kOfA / 2;  // registers
  const uint32_t* slots = &warp.block->kernel().slot_lists[static_cast<size_t>(op.immediate)];
  float *d[kSums], *c[kSums];
  const T *a[kOfA], *b[kOfB];
  for (float*& to : d) to = warp.lanes<float>(*slots++);
  for (const T*& from : a) from = warp.lanes<T>(*slots++);
  for (const T*& from : b) from = warp.lanes<T>(*slots++);
  for (float*& from : c) from = warp.lanes<float>(*slots++);
  // Eight elements of A's rows and of B's columns are adjacent.
  Columns left[kRows][kDepth / kSide], right[kDepth], sums[kRows];
  for (uint32_t k = 0; k < kDepth; k += kSide) {
    for (uint32_t row = 0; row < kRows; ++row)
      left[row][k / kSide] = to_floats<T>(run_at(a, place_in_a(row, k)));
    Matrix columns;
    for (uint32_t place = 0; place < kSide; ++place)
      columns[place] = run_at(b, place_in_b(k, column_at(place)));
    transpose(columns);
    for (uint32_t i = 0; i < kSide; ++i) right[k + i] = to_floats<T>(columns[i]);
  }
  constexpr size_t kHalf = kSide / 2 * sizeof(float);
  for_each_half(c, sums, [](float* sum, const float* from) { std::memcpy(sum, from, kHalf); });
  add_products(left, right, options().pairwise_mma, sums);
  for_each_half(d, sums, [](const float* sum, float* to) { std::memcpy(to, sum, kHalf); });
}

void mma(Decoder& d) {
  Op op;
  op.flow = Flow::whole_warp;
  const std::string_view shape = d.take_any({"m16n8k16", "m16n8k8"});
  if (!d.take("sync") || !d.take("aligned") || shape.empty())
    d.wrong("only .sync.aligned.m16n8k16 and .m16n8k8 are supported");
  if (!d.take("row") || !d.take("col")) d.wrong("only .row.col is supported");
  const Type result = d.take_type(), a = d.take_type(), b = d.take_type(), c = d.take_type();
  const bool is_half = a.is(Type::Kind::f, 2) && b.is(Type::Kind::f, 2);
  const bool is_bfloat = a.is(Type::Kind::bf, 2) && b.is(Type::Kind::bf, 2);
  if (!result.is_f32() || !c.is_f32() || is_half == is_bfloat)
    d.wrong("only .f32.bf16.bf16.f32 and .f32.f16.f16.f32 are supported");
  const bool is_deep = shape == "m16n8k16";
  op.run = is_deep ? (is_half ? multiply<Half, 16> : multiply<BFloat, 16>)
                   : (is_half ? multiply<Half, 8> : multiply<BFloat, 8>);
  const std::array<size_t, 4> registers{4, is_deep ? size_t{4} : 2, is_deep ? size_t{2} : 1, 4};
  std::vector<uint32_t> slots;
  for (size_t i = 0; i < registers.size(); ++i) {
    const std::vector<Operand> parts = d.elements(i);
    if (parts.size() != registers[i])
      d.wrong(str("operand ", i + 1, " has ", parts.size(), " registers, not ", registers[i]));
    for (const Operand& part : parts)
      slots.push_back(i == 0 ? d.register_of(part, 4) : d.read(part, i == 3 ? kF32 : kB32));
  }
  op.immediate = d.slot_list(slots);
  d.emit(op);
}

}  // namespace

void add_tensor_ops(OpTable& table) {
  table["ldmatrix"] = [](Decoder& d) { decode_matrices(d, true); };
  table["stmatrix"] = [](Decoder& d) { decode_matrices(d, false); };
  table["mma"] = mma;
}

}  // namespace flatshard::ptx_vm
