#pragma once
// The shapes of the output head and its loss, for the cases of the benchmark and for tests with random
// shapes.

#include "bench/case.h"

namespace flatshard::bench {

struct HeadSetting {
  int64_t N, C, V;
  int64_t chunk = 0;
  int64_t valid_vocab = 0;
  double softcap = 0;
  bool own = false;  // by the project's kernel, on a GPU that has it
};

Case head_forward_case(DType dtype, const HeadSetting& s);
Case head_backward_case(DType dtype, const HeadSetting& s);

}  // namespace flatshard::bench
