#pragma once
// A product of one shape on the CPU, ready to run any number of times on other data. f16 operands are widened
// to f32 in scratch.

#include "kernels/gemm_cut.h"
#include "runtime/arena.h"

namespace flatshard {

class HostProduct {
 public:
  // Only the shapes, dtypes, strides and options of `g` count. Takes scratch.
  HostProduct(Arena& scratch, const Gemm& g);

  // Multiplies on all threads; called from the work of a stream. `g` is alike but for its data.
  void run(const Gemm& g) const;

 private:
  HostProduct(Arena& scratch, const Gemm& g, const Gemm& wide);

  Gemm wide_;  // with data if operands are widened
  bool widens_;
  CutProduct cut_;
  Tensor workspace_;
};

}  // namespace flatshard
