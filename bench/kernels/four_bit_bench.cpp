// Cases of 4-bit quantization, shared by tests and benchmark. Codes must be equal, so the formulas compute in
// float like the op.

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/case.h"
#include "bench/four_bit_args.h"
#include "kernels/dynamic_table.h"
#include "kernels/four_bit.h"
#include "kernels/packed.h"

namespace flatshard::bench {
namespace {

// The code of y, found by comparing with the bounds of the specification one after another.
uint8_t code_of(float y, FourBitKind kind) {
  uint8_t code = 0;
  if (kind == FourBitKind::nf4) {
    const FourBitTable& table = four_bit_table(kind);
    while (code < 15 && y > (table[code] + table[code + 1]) / 2) ++code;
    return code;
  }
  constexpr std::array<std::pair<float, uint8_t>, 7> kBounds{{{0.00260417f, 1},
                                                              {0.0859375f, 6},
                                                              {0.20833333f, 7},
                                                              {0.29166667f, 4},
                                                              {0.4166667f, 5},
                                                              {0.583333f, 2},
                                                              {0.8333333f, 3}}};
  for (const auto& [bound, magnitude] : kBounds)
    if (std::abs(y) > bound) code = magnitude;
  return y < 0 ? code | 8 : code;
}

float scaled(float x, float absmax) { return absmax > 0 ? x * (1 / absmax) : 0.0f; }

float largest(const std::vector<double>& values, int64_t begin, int64_t end, double offset) {
  double max = 0;
  for (int64_t i = begin; i < end; ++i)
    max = std::max(max, std::abs(static_cast<double>(static_cast<float>(values[i] - offset))));
  return static_cast<float>(max);
}

QuantizeFourBit quantize_args(const Tensors& t, FourBitKind kind, int64_t block) {
  return {.codes = t["codes"], .absmax = t["absmax"], .x = t["x"], .kind = kind, .block = block};
}

void quantize_formula(Values& v, FourBitKind kind, int64_t block) {
  const std::vector<double> x = v["x"];
  const auto n = static_cast<int64_t>(x.size());
  v["codes"].assign(code_bytes(n), 0);
  v["absmax"].clear();
  for (int64_t begin = 0; begin < n; begin += block)
    v["absmax"].push_back(largest(x, begin, std::min(begin + block, n), 0));
  for (int64_t i = 0; i < n + n % 2; ++i) {
    const float y = i < n ? scaled(static_cast<float>(x[i]), static_cast<float>(v["absmax"][i / block])) : 0;
    v["codes"][i / 2] = 16 * v["codes"][i / 2] + code_of(y, kind);
  }
}

// One block in five is zero.
Fill with_zero_blocks(int64_t block) {
  return [=](int64_t i, double unit) { return i / block % 5 == 3 ? 0.0 : 3 * unit - 1.5; };
}

Case quantize_case(DType dtype, int64_t n, FourBitKind kind, int64_t block) {
  return {.op = "quantize_four_bit",
          .shape = str(n, ' ', name_of(kind), " block ", block),
          .dtype = dtype,
          .args = {{"x", dtype, {n}, Role::constant, with_zero_blocks(block)},
                   {"codes", DType::u8, {code_bytes(n)}, Role::output},
                   {"absmax", DType::f32, {block_count(n, block)}, Role::output}},
          .run = [=](Stream& s, Arena&,
                     const Tensors& t) { quantize_four_bit(s, quantize_args(t, kind, block)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(quantize_args(t, kind, block)); },
          .flops = [=](const Tensors& t) { return flops(quantize_args(t, kind, block)); },
          .reference = [=](Values& v) { quantize_formula(v, kind, block); }};
}

QuantizeScales scales_args(const Tensors& t) {
  return {.codes = t["codes"],
          .nested_absmax = t["nested_absmax"],
          .nested_offset = t["nested_offset"],
          .absmax = t["absmax"]};
}

void scales_formula(Values& v) {
  const std::vector<double>& absmax = v["absmax"];
  const DynamicTable& table = dynamic_table(true);
  const auto n = static_cast<int64_t>(absmax.size());
  double sum = 0;
  for (const double a : absmax) sum += a;
  const auto offset = static_cast<float>(sum / static_cast<double>(n));
  v["nested_offset"] = {offset};
  v["codes"].clear();
  v["nested_absmax"].clear();
  for (int64_t begin = 0; begin < n; begin += kNestedBlock) {
    const int64_t end = std::min(begin + kNestedBlock, n);
    const float nested = largest(absmax, begin, end, offset);
    v["nested_absmax"].push_back(nested);
    for (int64_t i = begin; i < end; ++i) {
      const float y = scaled(static_cast<float>(absmax[i]) - offset, nested);
      int code = 0;
      while (code < 255 && y > (table[code] + table[code + 1]) / 2) ++code;
      v["codes"].push_back(code);
    }
  }
}

Case scales_case(int64_t n) {
  return {.op = "quantize_scales",
          .shape = str(n),
          .dtype = DType::f32,
          .args = {{"absmax", DType::f32, {n}, Role::constant, [](int64_t, double unit) { return unit; }},
                   {"codes", DType::u8, {n}, Role::output},
                   {"nested_absmax", DType::f32, {block_count(n, kNestedBlock)}, Role::output},
                   {"nested_offset", DType::f32, {1}, Role::output}},
          .run = [](Stream& s, Arena&, const Tensors& t) { quantize_scales(s, scales_args(t)); },
          .min_bytes = [](const Tensors& t) { return min_bytes(scales_args(t)); },
          .flops = [](const Tensors& t) { return flops(scales_args(t)); },
          .reference = scales_formula};
}

// Dequantizes elements [first, first + n) of a weight.
Case dequantize_case(DType dtype, const FourBitWeight& w, int64_t first, int64_t n) {
  std::vector<Arg> args = four_bit_args(w);
  args.push_back({"y", dtype, {n}, Role::output});
  const auto op_args = [=](const Tensors& t) {
    return DequantizeFourBit{.y = t["y"], .w = four_bit_matrix(t, w), .first = first};
  };
  return {.op = "dequantize_four_bit",
          .shape = str(w.out, " x ", w.in, ' ', w.name(), first > 0 ? str(" from ", first) : ""),
          .dtype = dtype,
          .args = std::move(args),
          .run = [=](Stream& s, Arena&, const Tensors& t) { dequantize_four_bit(s, op_args(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(op_args(t)); },
          .flops = [=](const Tensors& t) { return flops(op_args(t)); },
          .reference =
              [=](Values& v) {
                v["y"].clear();
                for (int64_t i = first; i < first + n; ++i) v["y"].push_back(four_bit_value(v, w, i));
              }};
}

// The output is columns of wider rows.
Case dequantize_columns_case(DType dtype, const FourBitWeight& w) {
  constexpr int64_t kWider = 8;
  std::vector<Arg> args = four_bit_args(w);
  args.push_back({"y", dtype, {w.out, w.in + kWider}, Role::updated});
  const auto op_args = [=](const Tensors& t) {
    return DequantizeFourBit{
        .y = packed_columns(t["y"], 0, {w.out, w.in}), .w = four_bit_matrix(t, w), .y_stride = w.in + kWider};
  };
  return {.op = "dequantize_four_bit",
          .shape = str(w.out, " x ", w.in, ' ', w.name(), " packed"),
          .dtype = dtype,
          .args = std::move(args),
          .run = [=](Stream& s, Arena&, const Tensors& t) { dequantize_four_bit(s, op_args(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(op_args(t)); },
          .flops = [=](const Tensors& t) { return flops(op_args(t)); },
          .reference =
              [=](Values& v) {
                for (int64_t i = 0; i < w.out * w.in; ++i)
                  v["y"][i / w.in * (w.in + kWider) + i % w.in] = four_bit_value(v, w, i);
              }};
}

Case dequantize_case(DType dtype, const FourBitWeight& w) {
  return dequantize_case(dtype, w, 0, w.out * w.in);
}

std::vector<Case> test_cases() {
  std::vector<Case> cases;
  for (const FourBitKind kind : {FourBitKind::nf4, FourBitKind::fp4}) {
    for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
      for (const int64_t n : {1, 2, 31, 64, 131, 1000}) cases.push_back(quantize_case(dtype, n, kind, 64));
      cases.push_back(dequantize_case(dtype, {1, 1, {kind}}));
      cases.push_back(dequantize_case(dtype, {7, 33, {kind, 32, true}}));
      cases.push_back(dequantize_case(dtype, {80, 513, {kind, 64, true}}, 3, 40001));
      cases.push_back(dequantize_columns_case(dtype, {7, 33, {kind, 32, true}}));
      cases.push_back(dequantize_columns_case(dtype, {9, 1056, {kind}}));
    }
    for (int64_t block = kSmallestFourBitBlock; block <= kLargestFourBitBlock; block *= 2) {
      cases.push_back(quantize_case(DType::f32, 9001, kind, block));
      cases.push_back(dequantize_case(DType::bf16, {99, 91, {kind, block}}, 77, 8900));
    }
  }
  for (const int64_t n : {1, 2, 255, 256, 257, 1025, 70001}) cases.push_back(scales_case(n));
  return cases;
}

std::vector<Case> bench_cases() {
  constexpr int64_t kRows = 4096, kColumns = 14336, kCount = kRows * kColumns;
  constexpr FourBitKind kNf4 = FourBitKind::nf4, kFp4 = FourBitKind::fp4;
  return {quantize_case(DType::f32, kCount, kNf4, 64),
          quantize_case(DType::bf16, kCount, kNf4, 64),
          quantize_case(DType::bf16, kCount, kFp4, 64),
          scales_case(kCount / 64),
          dequantize_case(DType::f32, {kRows, kColumns, {kNf4}}),
          dequantize_case(DType::bf16, {kRows, kColumns, {kNf4}}),
          dequantize_case(DType::bf16, {kRows, kColumns, {kNf4, 64, true}}),
          dequantize_case(DType::bf16, {kRows, kColumns, {kFp4}})};
}

}  // namespace

std::vector<Case> four_bit_cases(Scale scale) {
  if (scale == Scale::test) return test_cases();
  if (scale == Scale::bench) return bench_cases();
  if (scale == Scale::golden) return {};
  return {quantize_case(DType::f32, 1 << 16, FourBitKind::nf4, 64),
          quantize_case(DType::bf16, 1 << 16, FourBitKind::fp4, 64),
          scales_case(1 << 14),
          dequantize_case(DType::bf16, {256, 256}),
          dequantize_columns_case(DType::bf16, {256, 256}),
          dequantize_case(DType::f32, {256, 256, {.nested = true}})};
}

}  // namespace flatshard::bench
