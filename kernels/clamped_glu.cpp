#include "kernels/clamped_glu.h"

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/simd_math.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

constexpr int64_t kElementsOfTask = 16384;

// The gates and ups of up to sixteen pairs.
struct Pairs16 {
  template <class T>
  Pairs16(const T* x, int lanes) {
    for (int i = 0; i < lanes; ++i) {
      gate[i] = static_cast<float>(x[2 * i]);
      up[i] = static_cast<float>(x[2 * i + 1]);
    }
  }
  Floats gate{}, up{};
};

// NaN stays NaN.
struct Bounded {
  Bounded(const Pairs16& x, float limit)
      : gate(min(splat(limit), x.gate)),
        up(max(splat(-limit), min(splat(limit), x.up)) + 1.0f),
        share(sigmoid(gate * kClampedSlope)) {}
  Floats gate, up, share;
};

template <class T>
void forward(const ClampedGluForward& a) {
  const T* const x = a.x.as<T>();
  T* const y = a.y.as<T>();
  parallel_blocks(a.y.size(), kElementsOfTask, [&](int64_t begin, int64_t end) {
    for_each_vector(end - begin, [&](int64_t i, auto lanes) {
      const Bounded b(Pairs16(x + 2 * (begin + i), lanes), a.limit);
      store(y + begin + i, b.gate * b.share * b.up, lanes);
    });
  });
}

template <class T>
void backward(const ClampedGluBackward& a) {
  const T* const x = a.x.as<T>();
  parallel_blocks(a.dy.size(), kElementsOfTask, [&](int64_t begin, int64_t end) {
    for_each_vector(end - begin, [&](int64_t i, auto lanes) {
      const Pairs16 pairs(x + 2 * (begin + i), lanes);
      const Bounded b(pairs, a.limit);
      const Floats dy = load(a.dy.as<T>() + begin + i, lanes), zero{};
      const Floats slope = b.share * fma(b.gate * kClampedSlope, 1.0f - b.share, splat(1.0f));
      const Floats dgate = pairs.gate > a.limit ? zero : dy * b.up * slope;
      const Floats dup = abs(pairs.up) > a.limit ? zero : dy * b.gate * b.share;
      T* const dx = a.dx.as<T>() + 2 * (begin + i);
      for (int j = 0; j < lanes; ++j) {
        dx[2 * j] = T(dgate[j]);
        dx[2 * j + 1] = T(dup[j]);
      }
    });
  });
}

}  // namespace
}  // namespace cpu

namespace {

void check_pairs(const char* op, const Tensor& x, const char* name, const Tensor& y, float limit) {
  check(is_float(x.dtype) && x.shape.rank() == 2 && y.dtype == x.dtype && y.shape.rank() == 2 &&
            x.shape[0] == y.shape[0] && x.shape[1] == 2 * y.shape[1],
        op, ": x is ", x.dtype, " ", x.shape, ", ", name, " is ", y.dtype, " ", y.shape,
        ": x must have a pair for each element");
  check(limit > 0, op, ": limit is ", limit, ", must be positive");
}

}  // namespace

void clamped_glu_forward(Stream& stream, const ClampedGluForward& a) {
  check_pairs("clamped_glu_forward", a.x, "y", a.y, a.limit);
  if (a.y.empty() || plans(stream, "clamped_glu_forward", a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::clamped_glu_forward(stream, a);
  stream.run("clamped_glu_forward", [a] { visit_float(a.y.dtype, [&]<class T>() { cpu::forward<T>(a); }); });
}

void clamped_glu_backward(Stream& stream, const ClampedGluBackward& a) {
  check_pairs("clamped_glu_backward", a.x, "dy", a.dy, a.limit);
  check_like("clamped_glu_backward", "dx", a.dx, "x", a.x);
  if (a.dy.empty() || plans(stream, "clamped_glu_backward", a, a.dy)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::clamped_glu_backward(stream, a);
  stream.run("clamped_glu_backward",
             [a] { visit_float(a.dy.dtype, [&]<class T>() { cpu::backward<T>(a); }); });
}

double min_bytes(const ClampedGluForward& a) { return bytes_of(a.x, a.y); }
double min_bytes(const ClampedGluBackward& a) { return bytes_of(a.x, a.dy, a.dx); }
// An exponential and a division count as one operation each.
double flops(const ClampedGluForward& a) { return 10.0 * static_cast<double>(a.y.size()); }
double flops(const ClampedGluBackward& a) { return 18.0 * static_cast<double>(a.dy.size()); }

}  // namespace flatshard
