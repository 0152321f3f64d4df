#pragma once
// The shapes of a call of attention, for the cases of the benchmark and for tests with random shapes.

#include <cmath>
#include <vector>

#include "bench/case.h"

namespace flatshard::bench {

struct AttentionSetting {
  std::vector<int64_t> queries;  // queries of each document
  int64_t Hq, Hkv, D;
  bool causal = true;
  int64_t window = 0;
  std::vector<int64_t> keys{};  // keys of each document; empty: like queries
  bool packed = false;          // q, k and v are heads of one tensor
  double softcap = 0;
  bool one_pass = false;  // one kernel for the backward pass, on a GPU that has it

  bool own_keys() const { return !keys.empty(); }
  const std::vector<int64_t>& key_lengths() const { return own_keys() ? keys : queries; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(D)); }
};

Case forward_case(DType dtype, const AttentionSetting& s);
Case backward_case(DType dtype, const AttentionSetting& s);

}  // namespace flatshard::bench
