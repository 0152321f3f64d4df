#include "kernels/dropout.h"

#include <algorithm>

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/packed.h"
#include "kernels/simd.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

// Size of a batch of random numbers, which is on the stack.
constexpr int64_t kBatch = 1024;

// Computes elements [first, last), whose inputs are contiguous at `in`.
template <class T>
void apply(const Dropout& a, int64_t first, int64_t last, const T* in) {
  const float scale = 1.0f / (1.0f - a.p);
  float uniform[kBatch];
  for (int64_t begin = first; begin < last; begin += kBatch, in += kBatch) {
    const int64_t count = std::min(kBatch, last - begin);
    a.random.fill_uniform(a.first + begin, {uniform, static_cast<size_t>(count)});
    T* out = a.out.as<T>() + begin;
    for_each_vector(count, [&](int64_t i, auto lanes) {
      const Floats factor = load(uniform + i, lanes) >= a.p ? splat(scale) : splat(0.0f);
      const Floats value = load(in + i, lanes) * factor;
      store(out + i, a.accumulate ? load(out + i, lanes) + value : value, lanes);
    });
  }
}

template <class T>
void apply(const Dropout& a) {
  const T* in = a.in.as<T>();
  const int64_t C = a.in.shape[-1];
  if (a.in_stride == C)
    return parallel_blocks(a.in.size(), 16 * kBatch,
                           [&](int64_t begin, int64_t end) { apply(a, begin, end, in + begin); });
  parallel_blocks(a.in.rows(), std::max<int64_t>(1, 16 * kBatch / C), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) apply(a, row * C, (row + 1) * C, in + row * a.in_stride);
  });
}

}  // namespace
}  // namespace cpu

namespace {

void run(Stream& stream, const char* op, Dropout a) {
  check_like(op, "the output", a.out, "the input", a.in);
  check(a.p >= 0.0f && a.p < 1.0f, op, ": p is ", a.p, ", must be in [0, 1)");
  check(a.first >= 0, op, ": first is ", a.first, ", must not be negative");
  a.in_stride = stride_or_width(op, a.in_stride, a.in.shape[-1]);
  if (a.in.empty() || plans(stream, op, a, a.in)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::dropout(stream, op, a);
  stream.run(op, [a] { visit_float(a.in.dtype, [&]<class T>() { cpu::apply<T>(a); }); });
}

}  // namespace

void dropout_forward(Stream& stream, const Dropout& a) { run(stream, "dropout_forward", a); }
void dropout_backward(Stream& stream, const Dropout& a) { run(stream, "dropout_backward", a); }

double min_bytes(const Dropout& a) { return bytes_of(a.in, a.out) + (a.accumulate ? bytes_of(a.out) : 0); }
double flops(const Dropout& a) { return static_cast<double>(a.in.size()); }

}  // namespace flatshard
