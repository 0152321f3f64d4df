#pragma once
// Selects whose kernels multiply on a GPU (kernels/gemm.h), for a scope.

#include "kernels/gemm.h"

namespace flatshard::bench {

class KernelsOf {
 public:
  explicit KernelsOf(bool own) {
    if (own) use_product_kernels(ProductKernels::own);
  }
  ~KernelsOf() { use_product_kernels(before_); }
  KernelsOf(const KernelsOf&) = delete;
  KernelsOf& operator=(const KernelsOf&) = delete;

 private:
  ProductKernels before_ = product_kernels();
};

}  // namespace flatshard::bench
