#pragma once
// A 4-bit weight as arguments of a case: random codes and scales, and its values in double for formulas.

#include <vector>

#include "bench/case.h"
#include "kernels/dynamic_table.h"
#include "kernels/four_bit.h"

namespace flatshard::bench {

struct FourBitWeight {
  int64_t out, in;
  FourBitFormat format{};

  std::string name() const {
    return str(format.kind, " block ", format.block, format.nested ? " nested" : "");
  }
};

inline std::vector<Arg> four_bit_args(const FourBitWeight& w) {
  const auto byte = [](int64_t, double unit) { return 256 * unit; };
  const auto table = [kind = w.format.kind](int64_t i, double) {
    return static_cast<double>(four_bit_table(kind)[static_cast<size_t>(i)]);
  };
  const auto nested_table = [](int64_t i, double) {
    return static_cast<double>(dynamic_table(true)[static_cast<size_t>(i)]);
  };
  const auto scale = [](int64_t, double unit) { return 0.25 + unit; };
  const int64_t n = w.out * w.in, blocks = block_count(n, w.format.block);
  std::vector<Arg> args{
      {"codes", DType::u8, {code_bytes(n)}, Role::constant, byte},
      {"table", DType::f32, {16}, Role::constant, table},
  };
  if (!w.format.nested) {
    args.push_back({"absmax", DType::f32, {blocks}, Role::constant, scale});
    return args;
  }
  args.push_back({"absmax", DType::u8, {blocks}, Role::constant, byte});
  args.push_back({"nested_absmax", DType::f32, {block_count(blocks, kNestedBlock)}, Role::constant, scale});
  args.push_back({"nested_table", DType::f32, {256}, Role::constant, nested_table});
  args.push_back({"nested_offset", DType::f32, {1}, Role::constant, scale});
  return args;
}

inline FourBitMatrix four_bit_matrix(const Tensors& t, const FourBitWeight& w) {
  FourBitMatrix matrix{.codes = t["codes"],
                       .absmax = t["absmax"],
                       .table = t["table"],
                       .block = w.format.block,
                       .shape = {w.out, w.in}};
  if (!w.format.nested) return matrix;
  matrix.nested_absmax = t["nested_absmax"];
  matrix.nested_table = t["nested_table"];
  matrix.nested_offset = t["nested_offset"];
  return matrix;
}

// Element i of the weight, in fp32 arithmetic like the op, before it is rounded to the dtype of a result.
inline double four_bit_value(const Values& v, const FourBitWeight& w, int64_t i) {
  const auto at = [&](const char* name, int64_t index) { return static_cast<float>(v.at(name)[index]); };
  const int byte = static_cast<int>(v.at("codes")[i / 2]), code = i % 2 == 0 ? byte / 16 : byte % 16;
  const int64_t block = i / w.format.block;
  float absmax = at("absmax", block);
  if (w.format.nested)
    absmax = at("nested_table", static_cast<int64_t>(absmax)) * at("nested_absmax", block / kNestedBlock) +
             at("nested_offset", 0);
  return static_cast<double>(at("table", code) * absmax);
}

}  // namespace flatshard::bench
