#include "kernels/gelu.h"

#include "build_config.h"
#include "kernels/gelu_math.h"
#include "kernels/parallel_write.h"
#include "kernels/planned_op.h"

namespace flatshard {
namespace {

void check_like(const char* op, const char* name, const Tensor& t, const Tensor& x) {
  check(t.shape == x.shape && t.dtype == x.dtype, op, ": ", name, " is ", t.dtype, " ", t.shape,
        ", must be like x ", x.dtype, " ", x.shape);
}

}  // namespace

namespace cpu {
namespace {

using namespace simd;

template <class T, class Of>
void forward(const GeluForward& a) {
  const T* x = a.x.as<T>();
  T* y = a.y.as<T>();
  const int64_t written = write_only_bytes(a.y, a.x);
  parallel_write(written, a.x.size(), kBlockElements, [&](int64_t begin, int64_t end, auto out) {
    for_each_vector(end - begin, [&](int64_t i, auto lanes) {
      const Floats v = load(x + begin + i, lanes);
      out.store(y + begin + i, v * Of::probability(v), lanes);
    });
  });
}

template <class T, class Of>
void backward(const GeluBackward& a) {
  const T *x = a.x.as<T>(), *dy = a.dy.as<T>();
  T* dx = a.dx.as<T>();
  const int64_t written = a.dx.data == a.x.data ? 0 : write_only_bytes(a.dx, a.dy);
  parallel_write(written, a.x.size(), kBlockElements, [&](int64_t begin, int64_t end, auto out) {
    for_each_vector(end - begin, [&](int64_t i, auto lanes) {
      const Floats v = load(x + begin + i, lanes);
      out.store(dx + begin + i, load(dy + begin + i, lanes) * Of::slope(v, Of::probability(v)), lanes);
    });
  });
}

// Calls f.operator()<T, Of>().
template <class F>
void visit(DType dtype, GeluKind kind, F&& f) {
  visit_float(dtype, [&]<class T>() {
    if (kind == GeluKind::tanh) f.template operator()<T, TanhGelu>();
    if (kind == GeluKind::erf) f.template operator()<T, ErfGelu>();
    if (kind == GeluKind::quick) f.template operator()<T, QuickGelu>();
  });
}

}  // namespace
}  // namespace cpu

void gelu_forward(Stream& stream, const GeluForward& a) {
  check_like("gelu_forward", "y", a.y, a.x);
  if (a.x.empty() || plans(stream, "gelu_forward", a, a.x)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::gelu_forward(stream, a);
  stream.run("gelu_forward",
             [a] { cpu::visit(a.x.dtype, a.kind, [&]<class T, class Of>() { cpu::forward<T, Of>(a); }); });
}

void gelu_backward(Stream& stream, const GeluBackward& a) {
  check_like("gelu_backward", "dy", a.dy, a.x);
  check_like("gelu_backward", "dx", a.dx, a.x);
  if (a.x.empty() || plans(stream, "gelu_backward", a, a.x)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::gelu_backward(stream, a);
  stream.run("gelu_backward",
             [a] { cpu::visit(a.x.dtype, a.kind, [&]<class T, class Of>() { cpu::backward<T, Of>(a); }); });
}

double min_bytes(const GeluForward& a) { return static_cast<double>(a.x.bytes() + a.y.bytes()); }
double min_bytes(const GeluBackward& a) {
  return static_cast<double>(a.x.bytes() + a.dy.bytes() + a.dx.bytes());
}
// The operations per element are in the order of GeluKind. A transcendental function counts as one operation.
double flops(const GeluForward& a) {
  constexpr double kOperations[] = {8, 26, 5};
  return kOperations[static_cast<int>(a.kind)] * static_cast<double>(a.x.size());
}
double flops(const GeluBackward& a) {
  constexpr double kOperations[] = {16, 30, 10};
  return kOperations[static_cast<int>(a.kind)] * static_cast<double>(a.x.size());
}

}  // namespace flatshard
