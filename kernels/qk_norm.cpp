#include "kernels/qk_norm.h"

#include <cmath>

#include "build_config.h"
#include "kernels/norm_types.h"
#include "kernels/op.h"
#include "kernels/row_blocks.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

// Arguments that both directions share.
struct Heads {
  const char* op;
  const Tensor &x, &wq, &wk, &rstd, &positions, &table;
  int64_t query_heads;
};

QkRows rows_of(const Heads& a) {
  check(a.x.shape.rank() == 3 && a.query_heads >= 0 && a.query_heads <= a.x.shape[1], a.op, ": x is ",
        a.x.shape, " with ", a.query_heads, " query heads, must be (T, Hq + Hkv, D)");
  const int64_t Hq = a.query_heads, Hkv = a.x.shape[1] - Hq, D = a.x.shape[2];
  check(D % 2 == 0, a.op, ": heads have ", D, " elements, must be even");
  const bool each = a.wq.size() == D && a.wk.size() == D;
  check(each || (a.wq.size() == Hq * D && a.wk.size() == Hkv * D), a.op, ": w has ", a.wq.size(), " and ",
        a.wk.size(), " elements, must have ", D, " each, or ", Hq * D, " and ", Hkv * D);
  check(a.wq.dtype == a.wk.dtype && (a.wq.dtype == a.x.dtype || a.wq.dtype == DType::f32), a.op, ": w is ",
        a.wq.dtype, " and ", a.wk.dtype, ", must be of x's dtype ", a.x.dtype, " or f32");
  const QkRows rows = each ? QkRows{Hq, Hkv, D, D, D} : QkRows{1, 1, Hq * D, Hkv * D, D};
  check(a.rstd.dtype == DType::f32 && a.rstd.size() == a.x.shape[0] * rows.rows(), a.op, ": rstd is ",
        a.rstd.dtype, " ", a.rstd.shape, ", must be f32 with ", rows.rows(), " elements for each of ",
        a.x.shape[0], " tokens");
  if (a.table.empty()) return rows;
  check(a.table.dtype == DType::f32 && a.table.shape.rank() == 2 && a.table.shape[1] == D, a.op,
        ": the table is ", a.table.dtype, " ", a.table.shape, ", must be f32 (positions, ", D, ")");
  check_each(a.op, "positions", a.positions, DType::i32, a.x.shape[0], "tokens");
  return rows;
}

int64_t token_stride(const char* op, int64_t stride, const Tensor& x) {
  return stride_or_width(op, stride, x.shape[1] * x.shape[2]);
}

}  // namespace

namespace cpu {
namespace {

using namespace simd;

// A pair of elements of a head, at i and i + D/2.
struct Pair {
  Floats a, b;
};

// The rotation of one token's heads.
class Turn {
 public:
  Turn(const Tensor& positions, const Tensor& table, int64_t token)
      : half_(table.empty() ? 0 : table.shape[1] / 2),
        cosines_(table.empty() ? nullptr
                               : table.as<float>() + positions.as<int32_t>()[token] * table.shape[1]) {}

  template <class Lanes>
  [[gnu::always_inline]] Pair forward(Pair x, int64_t i, Lanes lanes) const {
    return turned(x, i, 1.0f, lanes);
  }
  template <class Lanes>
  [[gnu::always_inline]] Pair backward(Pair dy, int64_t i, Lanes lanes) const {
    return turned(dy, i, -1.0f, lanes);
  }

 private:
  template <class Lanes>
  [[gnu::always_inline]] Pair turned(Pair x, int64_t i, float sign, Lanes lanes) const {
    if (!cosines_) return x;
    const Floats cosine = load(cosines_ + i, lanes), sine = load(cosines_ + half_ + i, lanes) * sign;
    return {fma(x.a, cosine, -x.b * sine), fma(x.b, cosine, x.a * sine)};
  }

  int64_t half_;
  const float* cosines_;
};

template <class T, class Lanes>
[[gnu::always_inline]] inline Pair load_pair(const T* at, int64_t half, Lanes lanes) {
  return {load(at, lanes), load(at + half, lanes)};
}

// Calls body(column, i, lanes) for the pairs of a row: the column of the first element, and its index i in
// its head.
template <class Body>
[[gnu::always_inline]] inline void for_each_pair(int64_t width, int64_t D, Body&& body) {
  for (int64_t head = 0; head < width; head += D)
    for_each_vector(D / 2, [&](int64_t i, auto lanes) { body(head + i, i, lanes); });
}

template <class T, class W>
void forward(const QkNormForward& a, const QkRows& rows, int64_t x_stride) {
  const int64_t y_stride = a.x.shape[1] * a.x.shape[2], half = rows.D / 2;
  parallel_write(
      a.y.bytes(), a.x.shape[0], rows_per_block(y_stride), [&](int64_t begin, int64_t end, auto out) {
        for (int64_t token = begin; token < end; ++token)
          for (int64_t row = 0; row < rows.rows(); ++row) {
            const int64_t width = rows.width(row), column = rows.column(row);
            const T* x = a.x.as<T>() + token * x_stride + column;
            T* y = a.y.as<T>() + token * y_stride + column;
            const W* w = (rows.is_q(row) ? a.wq : a.wk).as<W>();
            const float squares = sum_vectors(width, [&](int64_t i, auto lanes, Floats& total) {
              const Floats v = load(x + i, lanes);
              total = fma(v, v, total);
            });
            const float rstd = 1.0f / std::sqrt(squares / static_cast<float>(width) + a.eps);
            a.rstd.as<float>()[token * rows.rows() + row] = rstd;
            const Turn turn(a.positions, a.table, token);
            for_each_pair(width, rows.D, [&](int64_t at, int64_t i, auto lanes) {
              const auto normed = [&](int64_t from) {
                const Floats xhat = load(x + from, lanes) * rstd;
                return (a.round_xhat ? round_to<T>(xhat) : xhat) * (load(w + from, lanes) + a.offset);
              };
              const Pair turned = turn.forward({normed(at), normed(at + half)}, i, lanes);
              out.store(y + at, turned.a, lanes);
              out.store(y + at + half, turned.b, lanes);
            });
          }
      });
}

struct Strides {
  int64_t dx, dy, x;
};

// Computes dx of one row, and adds g xhat to dw if it is wanted.
template <class T, class W, bool kWantsDw, class Output>
void backward_row(const QkNormBackward& a, const QkRows& rows, const Strides& strides, int64_t token,
                  int64_t row, float* dw, Output out) {
  const int64_t width = rows.width(row), column = rows.column(row), half = rows.D / 2;
  const T *x = a.x.as<T>() + token * strides.x + column, *dy = a.dy.as<T>() + token * strides.dy + column;
  T* dx = a.dx.as<T>() + token * strides.dx + column;
  const W* w = (rows.is_q(row) ? a.wq : a.wk).as<W>();
  const float rstd = a.rstd.as<float>()[token * rows.rows() + row];
  const Turn turn(a.positions, a.table, token);
  const auto weight = [&](int64_t at, auto lanes) { return load(w + at, lanes) + a.offset; };
  float dot = 0;
  for (int64_t head = 0; head < width; head += rows.D)
    dot += sum_vectors(half, [&](int64_t i, auto lanes, Floats& total) {
      const int64_t at = head + i;
      const Pair g = turn.backward(load_pair(dy + at, half, lanes), i, lanes);
      const auto add = [&](int64_t from, Floats gradient) {
        const Floats xhat = load(x + from, lanes) * rstd;
        total = fma(gradient * weight(from, lanes), xhat, total);
        if constexpr (kWantsDw)
          store(dw + from, fma(gradient, a.round_xhat ? round_to<T>(xhat) : xhat, load(dw + from, lanes)),
                lanes);
      };
      add(at, g.a);
      add(at + half, g.b);
    });
  const Floats mean = splat(dot / static_cast<float>(width));
  for_each_pair(width, rows.D, [&](int64_t at, int64_t i, auto lanes) {
    const Pair g = turn.backward(load_pair(dy + at, half, lanes), i, lanes);
    const auto write = [&](int64_t to, Floats gradient) {
      const Floats xhat = load(x + to, lanes) * rstd;
      out.store(dx + to, rstd * (gradient * weight(to, lanes) - xhat * mean), lanes);
    };
    write(at, g.a);
    write(at + half, g.b);
  });
}

template <class T, class W, bool kWantsDw>
void backward(const QkNormBackward& a, const QkRows& rows, const Strides& strides, const Tensor& partial_dw) {
  sum_row_blocks(write_only_bytes(a.dx, a.dy), a.x.shape[0], partial_dw,
                 [&](int64_t token, float* dw, auto out) {
                   for (int64_t row = 0; row < rows.rows(); ++row)
                     backward_row<T, W, kWantsDw>(a, rows, strides, token, row,
                                                  dw + (rows.is_q(row) ? 0 : rows.q_width), out);
                 });
  add_row_blocks(a.dwq, partial_dw, a.accumulate);
  add_row_blocks(a.dwk, partial_dw, a.accumulate, rows.q_width);
}

}  // namespace
}  // namespace cpu

void qk_norm_forward(Stream& stream, const QkNormForward& a) {
  constexpr const char* kOp = "qk_norm_forward";
  const QkRows rows = rows_of({kOp, a.x, a.wq, a.wk, a.rstd, a.positions, a.table, a.query_heads});
  check_like(kOp, "y", a.y, "x", a.x);
  const int64_t x_stride = token_stride(kOp, a.x_stride, a.x);
  if (a.x.empty() || plans(stream, kOp, a, a.x)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::qk_norm_forward(stream, a, rows);
  stream.run(kOp, [=] {
    if (!a.table.empty()) check_positions(kOp, a.positions, a.x.shape[0], a.table.shape[0]);
    visit_norm(a.x.dtype, a.wq.dtype, [&]<class T, class W>() { cpu::forward<T, W>(a, rows, x_stride); });
  });
}

void qk_norm_backward(Stream& stream, Arena& scratch, const QkNormBackward& a) {
  constexpr const char* kOp = "qk_norm_backward";
  const QkRows rows = rows_of({kOp, a.x, a.wq, a.wk, a.rstd, a.positions, a.table, a.query_heads});
  check_like(kOp, "dx", a.dx, "x", a.x);
  check_like(kOp, "dy", a.dy, "x", a.x);
  check_gradient(kOp, "dwq", a.dwq, a.wq);
  check_gradient(kOp, "dwk", a.dwk, a.wk);
  const cpu::Strides strides{token_stride(kOp, a.dx_stride, a.x), token_stride(kOp, a.dy_stride, a.x),
                             token_stride(kOp, a.x_stride, a.x)};
  const ArenaScope scope(scratch);
  const bool wants_dw = !a.dwq.empty() || !a.dwk.empty(), on_gpu = stream.device().is_cuda();
  const int64_t blocks = partial_rows(stream.device(), a.x.shape[0]);
  const Tensor partial_dw = scratch.alloc(DType::f32, {blocks, wants_dw ? rows.q_width + rows.k_width : 0});
  if (plans(stream, kOp, a, a.x)) return;
  if (a.x.empty()) {
    for (const Tensor& dw : {a.dwq, a.dwk})
      if (!a.accumulate && !dw.empty()) zero(stream, dw);
    return;
  }
  if constexpr (kCudaBuilt)
    if (on_gpu) return cuda::qk_norm_backward(stream, a, rows, blocks, partial_dw);
  stream.run(kOp, [=] {
    if (!a.table.empty()) check_positions(kOp, a.positions, a.x.shape[0], a.table.shape[0]);
    visit_norm(a.x.dtype, a.wq.dtype, [&]<class T, class W>() {
      wants_dw ? cpu::backward<T, W, true>(a, rows, strides, partial_dw)
               : cpu::backward<T, W, false>(a, rows, strides, partial_dw);
    });
  });
}

// The table does not count, since its rows stay in the caches.
double min_bytes(const QkNormForward& a) { return bytes_of(a.x, a.y, a.wq, a.wk, a.rstd, a.positions); }
double min_bytes(const QkNormBackward& a) {
  return bytes_of(a.x, a.dy, a.dx, a.wq, a.wk, a.dwq, a.dwk, a.rstd, a.positions) +
         (a.accumulate ? bytes_of(a.dwq, a.dwk) : 0);
}
double flops(const QkNormForward& a) {
  return (a.table.empty() ? 4.0 : 7.0) * static_cast<double>(a.x.size());
}
double flops(const QkNormBackward& a) {
  return (a.table.empty() ? 10.0 : 13.0) * static_cast<double>(a.x.size());
}

}  // namespace flatshard
