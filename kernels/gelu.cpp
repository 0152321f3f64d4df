#include "kernels/gelu.h"

#include "build_config.h"
#include "kernels/gelu_math.h"
#include "kernels/op.h"
#include "kernels/parallel_write.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

template <class T, class Of>
void forward(const GeluForward& a) {
  const T* x = a.x.as<T>();
  write_elements<T>(a.y, write_only_bytes(a.y, a.x), [&](int64_t i, auto lanes) {
    const Floats v = load(x + i, lanes);
    return v * Of::probability(v);
  });
}

template <class T, class Of>
void backward(const GeluBackward& a) {
  const T *x = a.x.as<T>(), *dy = a.dy.as<T>();
  const int64_t written = a.dx.data == a.x.data ? 0 : write_only_bytes(a.dx, a.dy);
  write_elements<T>(a.dx, written, [&](int64_t i, auto lanes) {
    const Floats v = load(x + i, lanes);
    return load(dy + i, lanes) * Of::slope(v, Of::probability(v));
  });
}

}  // namespace
}  // namespace cpu

void gelu_forward(Stream& stream, const GeluForward& a) {
  check_like("gelu_forward", "y", a.y, "x", a.x);
  if (a.x.empty() || plans(stream, "gelu_forward", a, a.x)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::gelu_forward(stream, a);
  stream.run("gelu_forward", [a] {
    visit_gelu<simd::TanhGelu, simd::ErfGelu, simd::QuickGelu>(
        a.kind, [&]<class Of>() { visit_float(a.x.dtype, [&]<class T>() { cpu::forward<T, Of>(a); }); });
  });
}

void gelu_backward(Stream& stream, const GeluBackward& a) {
  check_like("gelu_backward", "dy", a.dy, "x", a.x);
  check_like("gelu_backward", "dx", a.dx, "x", a.x);
  if (a.x.empty() || plans(stream, "gelu_backward", a, a.x)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::gelu_backward(stream, a);
  stream.run("gelu_backward", [a] {
    visit_gelu<simd::TanhGelu, simd::ErfGelu, simd::QuickGelu>(
        a.kind, [&]<class Of>() { visit_float(a.x.dtype, [&]<class T>() { cpu::backward<T, Of>(a); }); });
  });
}

double min_bytes(const GeluForward& a) { return bytes_of(a.x, a.y); }
double min_bytes(const GeluBackward& a) { return bytes_of(a.x, a.dy, a.dx); }
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
