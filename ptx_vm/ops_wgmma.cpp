// wgmma setmaxnreg: operations of warpgroups. Each warp computes 16 rows of a product asynchronously; shared
// memory is read through the async proxy when the product runs.

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "ptx_vm/access.h"
#include "ptx_vm/decode.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/hw/fragments.h"
#include "ptx_vm/hw/wgmma.h"
#include "ptx_vm/numbers.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/report.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint32_t kDepth = 16, kRows = 16, kColumns = 256;  // of one warp's part, the most columns
constexpr uint32_t kPiece = 8;                               // adjacent elements: 16 bytes
constexpr Type kB32{Type::Kind::bits, 4}, kB64{Type::Kind::bits, 8};
enum Slot : size_t { kA, kB, kScale };

Products& products_of(Warp& warp) { return warp.block->products[static_cast<size_t>(warp.index)]; }

void step_together(Warp& warp, std::array<uint64_t, 3> same = {}) {
  warp.block->warpgroups[static_cast<size_t>(warp.index / 4)].step(warp, same);
}

// keep(i, k, value) for `count` rows or columns from `first` on, of all 16 k.
template <class T, class Keep>
void read_matrix(Warp& actor, const MatrixDescriptor& m, bool transposed, uint32_t first, uint32_t count,
                 Keep&& keep) {
  const uint32_t inner = transposed ? count : kDepth, outer = transposed ? kDepth : count;
  for (uint32_t o = 0; o < outer; ++o)
    for (uint32_t piece = 0; piece < inner; piece += kPiece) {
      const uint32_t i = first + (transposed ? piece : o), k = transposed ? o : piece;
      T values[kPiece];
      std::memcpy(
          values,
          touch(actor, Space::shared, element_address(m, transposed, i, k), sizeof(values), Access::read),
          sizeof(values));
      for (uint32_t e = 0; e < kPiece; ++e)
        keep(transposed ? i + e - first : i - first, transposed ? k : k + e, to_float(values[e]));
    }
}

// The products of one row of A with all columns, added to the row's sums: in the order of k, or in pairs.
void add_products(float* sum, const float* a, const float (*b)[kColumns], uint32_t columns, bool in_pairs) {
  for (uint32_t k = 0; k < kDepth; k += 2)
    for (uint32_t column = 0; column < columns; ++column) {
      const float even = a[k] * b[k][column], odd = a[k + 1] * b[k + 1][column];
      sum[column] = in_pairs ? sum[column] + (even + odd) : sum[column] + even + odd;
    }
}

// The part of the product that one warp computes in its registers.
template <class T>
void multiply(Warp& actor, const Warp& warp, const ProductForm& form, std::array<uint64_t, 3> operands) {
  float a[kRows][kDepth], b[kDepth][kColumns], sums[kColumns];
  const uint32_t columns = form.columns();
  const auto first_row = static_cast<uint32_t>(warp.index % 4) * kRows;
  if (form.a.empty())
    read_matrix<T>(actor, unpack(operands[kA]), form.transposed_a, first_row, kRows,
                   [&](uint32_t i, uint32_t k, float value) { a[i][k] = form.sign * value; });
  else
    for (uint32_t row = 0; row < kRows; ++row)
      for (uint32_t k = 0; k < kDepth; ++k) {
        const FragmentPlace at = place_in_a(row, k);
        a[row][k] = form.sign * to_float(warp.lanes<T>(form.a[at.reg])[at.lane * 2 + at.half]);
      }
  read_matrix<T>(actor, unpack(operands[kB]), form.transposed_b, 0, columns,
                 [&](uint32_t i, uint32_t k, float value) { b[k][i] = value; });
  for (uint32_t row = 0; row < kRows; ++row) {
    const auto place = [&](uint32_t column) -> float& {
      const FragmentPlace at = place_in_accumulator(row, column);
      return warp.lanes<float>(form.d[at.reg])[at.lane];
    };
    for (uint32_t column = 0; column < columns; ++column)
      sums[column] = operands[kScale] ? place(column) : 0.0f;
    add_products(sums, a[row], b, columns, options().pairwise_mma);
    for (uint32_t column = 0; column < columns; ++column) place(column) = sums[column];
  }
}

uint64_t same_in_all_lanes(Warp& warp, uint32_t slot) {
  const auto* values = warp.lanes<uint64_t>(slot);
  for (int lane = 1; lane < kLanes; ++lane)
    if (values[lane] != values[0])
      report(FindingKind::matrix_descriptor, warp, lane, "the descriptor differs from lane 0's");
  return values[0];
}

void check_descriptor(const Warp& warp, const char* matrix, uint64_t bits, bool transposed, uint32_t count) {
  const MatrixDescriptor m = unpack(bits);
  const auto wrong = [&](const std::string& why) {
    report(FindingKind::matrix_descriptor, warp, 0, str("of ", matrix, ", 0x", std::hex, bits, ", ", why));
  };
  if (pack(m) != bits) wrong("has reserved bits set");
  if (!begins_at_a_pattern(m))
    wrong(str("begins at byte ", m.start % pattern_bytes(m.swizzle), " of a swizzle pattern of ",
              pattern_bytes(m.swizzle), " bytes, must begin in its first row"));
  if (!stays_in_rows(m, transposed, count))
    wrong(str("begins at byte ", m.start % row_bytes(m.swizzle),
              " of a row of the pattern, and runs beyond its ", row_bytes(m.swizzle), " bytes"));
}

void issue(Warp& warp, const Op& op) {
  const ProductForm& form = warp.block->kernel().products[static_cast<size_t>(op.immediate)];
  std::array<uint64_t, 3> operands{};
  if (form.a.empty())
    check_descriptor(warp, "A", operands[kA] = same_in_all_lanes(warp, op.slot[kA]), form.transposed_a,
                     4 * kRows);
  check_descriptor(warp, "B", operands[kB] = same_in_all_lanes(warp, op.slot[kB]), form.transposed_b,
                   form.columns());
  const uint32_t scale = warp.predicate(op.slot[kScale]);
  if (scale != 0 && scale != kAllLanes)
    report(FindingKind::divergent_warpgroup, warp, 0, "the lanes disagree on whether to add to D");
  operands[kScale] = scale & 1;
  step_together(warp, operands);
  Products& products = products_of(warp);
  products.begin(warp, form);
  const auto work = warp.block->launch->async.issue(
      warp, 0,
      [&warp, &form, operands](Warp& actor) {
        (form.is_half ? multiply<Half> : multiply<BFloat>)(actor, warp, form, operands);
      },
      products.line);
  products.add(work);
}

void fence_products(Warp& warp, const Op&) {
  step_together(warp);
  products_of(warp).fence();
}

void commit_group(Warp& warp, const Op&) {
  step_together(warp);
  products_of(warp).commit();
}

void wait_group(Warp& warp, const Op& op) {
  step_together(warp);
  products_of(warp).wait(warp, static_cast<size_t>(op.immediate));
}

// 1 or -1.
float sign_of(Decoder& d, size_t i) {
  const auto value = static_cast<int32_t>(d.integer(i));
  if (value != 1 && value != -1) d.wrong(str("operand ", i + 1, " is neither 1 nor -1"));
  return static_cast<float>(value);
}

bool flag_of(Decoder& d, size_t i) {
  if (d.integer(i) > 1) d.wrong(str("operand ", i + 1, " is neither 0 nor 1"));
  return d.integer(i) == 1;
}

uint32_t take_columns(Decoder& d) {
  for (uint32_t n = 8; n <= kColumns; n += 8)
    if (d.take(str("m64n", n, "k16"))) return n;
  d.wrong("only .m64nNk16 is supported, N a multiple of 8 up to 256");
}

// D, A, B, scale-d, signs of A and B, then whether A (unless it is in registers) and B are transposed.
void mma_async(Decoder& d) {
  const uint32_t columns = take_columns(d);
  const Type result = d.take_type(), a = d.take_type(), b = d.take_type();
  ProductForm form;
  form.is_half = a.is(Type::Kind::f, 2) && b.is(Type::Kind::f, 2);
  if (!result.is_f32() || (!form.is_half && !(a.is(Type::Kind::bf, 2) && b.is(Type::Kind::bf, 2))))
    d.wrong("only .f32.bf16.bf16 and .f32.f16.f16 are supported");
  Op op;
  op.run = issue;
  op.flow = Flow::whole_warp;
  for (const Operand& part : d.elements(0)) form.d.push_back(d.register_of(part, 4));
  if (form.columns() != columns) d.wrong(str(form.d.size(), " accumulators for ", columns, " columns"));
  const bool in_registers = d.operand(1).kind == Operand::Kind::list;
  if (in_registers) {
    for (const Operand& part : d.elements(1)) form.a.push_back(d.register_of(part, 4));
    if (form.a.size() != 4) d.wrong(str(form.a.size(), " registers of A, not 4"));
  } else {
    op.slot[kA] = d.read(1, kB64);
  }
  op.slot[kB] = d.read(2, kB64);
  op.slot[kScale] = d.predicate(d.operand(3));
  form.sign = sign_of(d, 4) * sign_of(d, 5);
  form.transposed_a = !in_registers && flag_of(d, 6);
  form.transposed_b = flag_of(d, in_registers ? 6 : 7);
  if (d.operands() != (in_registers ? 7 : 8)) d.wrong(str(d.operands(), " operands"));
  d.emit_product(op, std::move(form));
}

template <bool kIncreases>
void set_registers(Warp& warp, const Op& op) {
  const auto each = static_cast<uint32_t>(op.immediate);
  step_together(warp, {each});
  RegisterPool& pool = warp.block->register_pool;
  kIncreases ? pool.increase(warp, each) : pool.decrease(warp, each);
}

void setmaxnreg(Decoder& d) {
  d.need_sm_90();
  d.use_warpgroups();
  Op op;
  op.flow = Flow::whole_warp;
  const std::string_view what = d.take_any({"inc", "dec"});
  if (what.empty() || !d.take("sync") || !d.take("aligned") || !d.take("u32"))
    d.wrong("only .inc and .dec with .sync.aligned.u32 are supported");
  const uint64_t each = d.integer(0);
  if (each < 24 || each > 256 || each % 8)
    d.wrong(str(each, " registers, must be a multiple of 8 from 24 to 256"));
  if (!d.has_register_budget())
    d.wrong("has no effect in a kernel without .maxntid and .minnctapersm (__launch_bounds__ with both)");
  op.immediate = static_cast<int64_t>(each);
  op.run = what == "inc" ? set_registers<true> : set_registers<false>;
  d.emit(op);
}

void wgmma(Decoder& d) {
  d.need_sm_90();
  const std::string_view what = d.take_any({"mma_async", "fence", "commit_group", "wait_group"});
  if (what.empty() || !d.take("sync") || !d.take("aligned"))
    d.wrong("only .mma_async, .fence, .commit_group and .wait_group with .sync.aligned are supported");
  d.use_warpgroups();
  if (what == "mma_async") return mma_async(d);
  Op op;
  op.flow = Flow::whole_warp;
  op.run = what == "fence" ? fence_products : what == "commit_group" ? commit_group : wait_group;
  if (what == "wait_group") op.immediate = static_cast<int64_t>(d.integer(0));
  d.emit(op);
}

}  // namespace

void Decoder::emit_product(Op op, ProductForm form) {
  op.immediate = static_cast<int64_t>(kernel_.products.size());
  kernel_.products.push_back(std::move(form));
  emit(op);
}

// The other ops that access registers of products, so that only these are checked.
void Decoder::mark_product_registers() {
  std::unordered_set<uint32_t> used;
  for (const ProductForm& form : kernel_.products) {
    used.insert(form.d.begin(), form.d.end());
    used.insert(form.a.begin(), form.a.end());
  }
  if (used.empty()) return;
  for (auto& [op, slots] : accesses_) {
    std::erase_if(slots, [&](uint32_t slot) { return !used.contains(slot); });
    if (slots.empty() || kernel_.code[op].run == issue) continue;
    kernel_.code[op].touches_product = true;
    kernel_.product_registers[op] = std::move(slots);
  }
}

void add_wgmma_ops(OpTable& table) {
  table["wgmma"] = wgmma;
  table["setmaxnreg"] = setmaxnreg;
}

}  // namespace flatshard::ptx_vm
