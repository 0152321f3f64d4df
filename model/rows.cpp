#include "model/rows.h"

#include "kernels/gemm.h"

namespace flatshard {

void gemm(LayerCall& c, const Product& product) {
  gemm(c.stream, c.scratch,
       {.c = product.c.values(),
        .a = product.a.values(),
        .b = product.b.values(),
        .bias = product.bias,
        .addend = product.addend.values(),
        .transpose_a = product.transpose_a,
        .transpose_b = product.transpose_b,
        .accumulate = product.accumulate,
        .alpha = product.alpha,
        .tf32 = c.tf32,
        .a_stride = product.a.stride(),
        .b_stride = product.b.stride(),
        .c_stride = product.c.stride(),
        .end = product.end});
}

}  // namespace flatshard
