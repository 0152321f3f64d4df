#pragma once
// The passes of a block and a training step of well-known models on the machine, for `bench --vm`. They have
// the models' head sizes and, rounded to whole heads, the ratios of their widths, at a third or an eighth of
// the width. The last model is also trained with adapters of rank 16, on weights in bf16 and in NF4.

#include <functional>
#include <string>
#include <vector>

#include "ptx_vm/counts.h"

namespace flatshard::ptx_vm {

struct ModelCounts {
  Counts counts;
  double least_bytes;  // bytes of the formulas of all kernels but products; 0: no formulas
};

struct ModelCase {
  std::string label;  // a label such as "model block_forward llama-3-8b/8 256 tokens bf16"
  std::function<ModelCounts()> count;
};

std::vector<ModelCase> model_cases();

}  // namespace flatshard::ptx_vm
