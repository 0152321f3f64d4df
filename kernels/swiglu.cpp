#include "kernels/swiglu.h"

#include "build_config.h"
#include "kernels/gelu_math.h"
#include "kernels/op.h"
#include "kernels/parallel_write.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

struct Silu {
  static Floats probability(Floats x) { return sigmoid(x); }
  static Floats slope(Floats x, Floats p) { return p * fma(x, 1.0f - p, splat(1.0f)); }
};

template <class T, class Of>
void forward(const SwigluForward& a, int64_t stride, int64_t y_stride) {
  const int64_t F = a.y.shape[-1];
  parallel_write(a.y.bytes(), a.y.rows(), rows_per_block(F), [&](int64_t begin, int64_t end, auto out) {
    for (int64_t row = begin; row < end; ++row) {
      const T *gate = a.gate.as<T>() + row * stride, *up = a.up.as<T>() + row * stride;
      T* y = a.y.as<T>() + row * y_stride;
      for_each_vector(F, [&](int64_t i, auto lanes) {
        const Floats g = load(gate + i, lanes);
        out.store(y + i, g * Of::probability(g) * load(up + i, lanes), lanes);
      });
    }
  });
}

template <class T, class Of>
void backward(const SwigluBackward& a, int64_t stride) {
  const int64_t F = a.dy.shape[-1];
  const int64_t written = write_only_bytes(a.dgate, a.gate) + write_only_bytes(a.dup, a.up);
  parallel_write(written, a.dy.rows(), rows_per_block(F), [&](int64_t begin, int64_t end, auto out) {
    for (int64_t row = begin; row < end; ++row) {
      const T *gate = a.gate.as<T>() + row * stride, *up = a.up.as<T>() + row * stride;
      const T* dy = a.dy.as<T>() + row * F;
      T *dgate = a.dgate.as<T>() + row * stride, *dup = a.dup.as<T>() + row * stride;
      for_each_vector(F, [&](int64_t i, auto lanes) {
        const Floats g = load(gate + i, lanes), d = load(dy + i, lanes), p = Of::probability(g);
        out.store(dgate + i, d * load(up + i, lanes) * Of::slope(g, p), lanes);
        out.store(dup + i, d * g * p, lanes);
      });
    }
  });
}

// Calls f.operator()<T, Of>().
template <class F>
void visit(DType dtype, Gate function, F&& f) {
  visit_float(dtype, [&]<class T>() {
    function == Gate::silu ? f.template operator()<T, Silu>() : f.template operator()<T, TanhGelu>();
  });
}

}  // namespace
}  // namespace cpu

void swiglu_forward(Stream& stream, const SwigluForward& a) {
  check_like("swiglu_forward", "y", a.y, "gate", a.gate);
  check_like("swiglu_forward", "up", a.up, "gate", a.gate);
  const int64_t stride = stride_or_width("swiglu_forward", a.row_stride, a.y.shape[-1]),
                y_stride = stride_or_width("swiglu_forward: y", a.y_stride, a.y.shape[-1]);
  if (a.y.empty() || plans(stream, "swiglu_forward", a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::swiglu_forward(stream, a, stride, y_stride);
  stream.run("swiglu_forward", [a, stride, y_stride] {
    cpu::visit(a.y.dtype, a.function, [&]<class T, class Of>() { cpu::forward<T, Of>(a, stride, y_stride); });
  });
}

void swiglu_backward(Stream& stream, const SwigluBackward& a) {
  check_like("swiglu_backward", "up", a.up, "gate", a.gate);
  check_like("swiglu_backward", "dy", a.dy, "gate", a.gate);
  check_like("swiglu_backward", "dgate", a.dgate, "gate", a.gate);
  check_like("swiglu_backward", "dup", a.dup, "gate", a.gate);
  const int64_t stride = stride_or_width("swiglu_backward", a.row_stride, a.dy.shape[-1]);
  if (a.dy.empty() || plans(stream, "swiglu_backward", a, a.dy)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::swiglu_backward(stream, a, stride);
  stream.run("swiglu_backward", [a, stride] {
    cpu::visit(a.dy.dtype, a.function, [&]<class T, class Of>() { cpu::backward<T, Of>(a, stride); });
  });
}

double min_bytes(const SwigluForward& a) { return bytes_of(a.gate, a.up, a.y); }
double min_bytes(const SwigluBackward& a) { return bytes_of(a.gate, a.up, a.dy, a.dgate, a.dup); }
// An exponential and a division count as one operation each.
double flops(const SwigluForward& a) {
  return (a.function == Gate::silu ? 5.0 : 9.0) * static_cast<double>(a.y.size());
}
double flops(const SwigluBackward& a) {
  return (a.function == Gate::silu ? 11.0 : 19.0) * static_cast<double>(a.dy.size());
}

}  // namespace flatshard
