#pragma once
// RMSNorm and rotation of the heads of q and k, which a packed projection has side by side (packed.h), in one
// pass: rmsnorm.h, then rope.h, without rounding in between. R is the rotation of each head by the position
// of its token, or the identity if there is no table:
//   rstd = 1 / sqrt(mean(x^2) + eps)      xhat = x rstd      y = R (xhat (w + offset))
//   g = R^T dy      dx = rstd (g (w + offset) - xhat mean(g (w + offset) xhat))      dw += or = sum of g xhat
// The width of w decides over what the mean is taken: over a head, with one w (D) for all heads of q and
// another for all heads of k; or over all heads of q and over all heads of k, with w (Hq D) and (Hkv D). dx
// may be dy. dw is summed in an order independent of the number of threads (row_blocks.h). A position outside
// the table is an error as in rope.h.

#include "kernels/packed.h"
#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct QkNormForward {
  Tensor y;              // (T, Hq + Hkv, D)
  Tensor rstd;           // (T, Hq + Hkv) f32, or (T, 2) for norms of all heads; saved for the backward pass
  Tensor x;              // (T, Hq + Hkv, D), of y's dtype
  Tensor wq, wk;         // (D) each, or (Hq D) and (Hkv D), of y's dtype or f32
  Tensor positions{};    // (T) i32, in [0, P)
  Tensor table{};        // (P, D) f32, or empty: no rotation
  int64_t x_stride = 0;  // elements between tokens; 0: (Hq + Hkv) D
  int64_t query_heads;   // Hq
  float eps;
  float offset = 0;
  bool round_xhat = true;
};

struct QkNormBackward {
  Tensor dx;                                  // (T, Hq + Hkv, D); may be dy
  Tensor dwq, dwk;                            // shapes of wq and wk, f32; empty: not computed
  Tensor dy;                                  // (T, Hq + Hkv, D)
  Tensor x;                                   // (T, Hq + Hkv, D)
  Tensor wq, wk, rstd, positions{}, table{};  // same as in the forward pass
  int64_t dx_stride = 0, dy_stride = 0, x_stride = 0;
  int64_t query_heads;
  float offset = 0;
  bool round_xhat = true;
  bool accumulate = true;  // false: dwq and dwk are written
};

void qk_norm_forward(Stream& stream, const QkNormForward& a);
void qk_norm_backward(Stream& stream, Arena& scratch, const QkNormBackward& a);

double min_bytes(const QkNormForward& a);
double min_bytes(const QkNormBackward& a);
double flops(const QkNormForward& a);
double flops(const QkNormBackward& a);

// The rows of a token, each of which is normalized by itself. The rows of q come first.
struct QkRows {
  int64_t q_rows, k_rows;    // rows per token
  int64_t q_width, k_width;  // elements of a row
  int64_t D;

  constexpr int64_t rows() const { return q_rows + k_rows; }
  constexpr bool is_q(int64_t row) const { return row < q_rows; }
  constexpr int64_t width(int64_t row) const { return is_q(row) ? q_width : k_width; }
  constexpr int64_t widest() const { return q_width > k_width ? q_width : k_width; }
  constexpr int64_t column(int64_t row) const {
    return is_q(row) ? row * q_width : q_rows * q_width + (row - q_rows) * k_width;
  }
};

namespace cuda {
void qk_norm_forward(Stream& stream, const QkNormForward& a, const QkRows& rows);
// partial_dw has blocks * (q_width + k_width) elements, or none if no dw is wanted.
void qk_norm_backward(Stream& stream, const QkNormBackward& a, const QkRows& rows, int64_t blocks,
                      const Tensor& partial_dw);
}  // namespace cuda

}  // namespace flatshard
