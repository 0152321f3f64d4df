#pragma once
// A block of a transformer on the machine, in bf16: the costs of its passes, and the least bytes of the
// formulas of its kernels, except matrix products.

#include "model/model.h"
#include "ptx_vm/counts.h"
#include "runtime/arena.h"
#include "runtime/stream.h"

namespace flatshard::ptx_vm {

class BlockRun {
 public:
  // Runs the first block of a model, with one sequence of `tokens` tokens. With adapters, all other
  // parameters are frozen.
  BlockRun(const ModelConfig& config, int64_t tokens);

  Counts count_forward();
  Counts count_backward();  // call after a forward pass; writes the gradients

 private:
  void allocate();
  LayerCall call(Stream& stream);
  void forward(Stream& stream);
  void backward(Stream& stream);

  int64_t tokens_;
  StreamSet streams_{Device::cuda(0)};
  Stream& stream_ = streams_.add("compute");
  Arena memory_{"all", Device::cuda(0)}, saved_{"saved", Device::cuda(0)},
      scratch_{"scratch", Device::cuda(0)};
  Model model_;
  Tensor x_, y_, dx_, positions_, boundaries_;
  ParamTensors parameters_, gradients_;
};

struct BlockBytes {
  double forward = 0, backward = 0;
};
// `accumulate`: the backward pass adds to existing gradients.
BlockBytes least_bytes(const ModelConfig& config, int64_t tokens, bool accumulate = false);

}  // namespace flatshard::ptx_vm
