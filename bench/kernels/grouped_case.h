#pragma once
// Cases of products of segments of rows (kernels/grouped_product.h).

#include <string>
#include <vector>

#include "bench/case.h"
#include "bench/kernels/gemm_setting.h"

namespace flatshard::bench {

enum class GroupedKind { forward, input_gradient, weight_gradient };  // y, dx, dw

struct GroupedSetting {
  DType dtype;
  GroupedKind kind;
  std::vector<int64_t> rows;  // the rows of each segment
  int64_t behind = 0;         // rows behind the last segment
  int64_t M = 0, N, K = 0;    // dw has no K, y and dx have no M
  DType out = DType::f32;     // the dtype of dw
  bool accumulate = false;    // adds to the previous c
  GemmEnd end = GemmEnd::none;
  Gate function = Gate::silu;
  int64_t tokens = 0;   // rows of the matrix whose rows are gathered; 0: none are
  int64_t between = 0;  // elements between matrices beside their own
  int64_t spare = 0;    // columns before those of all matrices of rows
  double alpha = 1;
};

Case grouped_case(const GroupedSetting& s);

}  // namespace flatshard::bench
