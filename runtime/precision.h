#pragma once
// The compute dtypes, under the names that users know.

#include "runtime/dtype.h"
#include "runtime/named.h"

namespace flatshard {

enum class Precision { bf16, fp16, fp32 };
constexpr auto value_names(Precision) { return std::array{"bf16", "fp16", "fp32"}; }

constexpr DType dtype_in(Precision precision) {
  return precision == Precision::fp32 ? DType::f32 : precision == Precision::bf16 ? DType::bf16 : DType::f16;
}

}  // namespace flatshard
