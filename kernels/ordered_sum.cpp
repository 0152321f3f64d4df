#include "kernels/ordered_sum.h"

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/parallel_write.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

constexpr int64_t kBlock = 4096;
constexpr int kMaxLevels = 32;
constexpr int64_t kMaxLanes = int64_t{1} << (kMaxLevels - 1);

// The tree over L lanes, L a power of two, `stride` elements apart.
template <int L, class T, class Lanes>
inline Floats full_tree(const T* p, int64_t stride, Lanes lanes) {
  if constexpr (L == 1)
    return load(p, lanes);
  else
    return full_tree<L / 2>(p, stride, lanes) + full_tree<L / 2>(p + L / 2 * stride, stride, lanes);
}

// The tree over any number of lanes as a binary counter: bit k of the number of lanes processed tells whether
// a sum of 2^k lanes is pending.
template <class T, class Lanes>
inline Floats any_tree(const T* p, int64_t L, int64_t stride, Lanes lanes) {
  Floats waiting[kMaxLevels];
  int top = 0;
  for (int64_t lane = 0; lane < L; ++lane) {
    Floats sum = load(p + lane * stride, lanes);
    for (int64_t carry = lane; carry & 1; carry >>= 1) sum = waiting[--top] + sum;
    waiting[top++] = sum;
  }
  Floats sum = waiting[--top];
  while (top > 0) sum = waiting[--top] + sum;
  return sum;
}

// The tree of its size, if the number of lanes is a power of two up to kMost.
template <int kMost = 8, class T, class Lanes>
inline Floats tree(const T* p, int64_t L, int64_t stride, Lanes lanes) {
  if constexpr (kMost == 0)
    return any_tree(p, L, stride, lanes);
  else
    return L == kMost ? full_tree<kMost>(p, stride, lanes) : tree<kMost / 2>(p, L, stride, lanes);
}

template <class T>
void sum_lanes(const OrderedSum& a) {
  const int64_t n = a.y.size(), L = a.lanes.shape[0];
  parallel_write(a.accumulate ? 0 : a.y.bytes(), n, kBlock, [&](int64_t begin, int64_t end, auto out) {
    const T* p = a.lanes.as<T>() + begin;
    float* y = a.y.as<float>() + begin;
    for_each_vector(end - begin, [&](int64_t i, auto lanes) {
      const Floats sum = tree(p + i, L, n, lanes);
      out.store(y + i, a.accumulate ? load(y + i, lanes) + sum : sum, lanes);
    });
  });
}

}  // namespace
}  // namespace cpu

void ordered_sum(Stream& stream, const OrderedSum& a) {
  check(a.lanes.shape.rank() >= 1 && a.lanes.shape[0] >= 1 && a.lanes.shape[0] <= cpu::kMaxLanes,
        "ordered_sum: lanes is ", a.lanes.shape, ", must have a first dimension of 1 to 2^31");
  check(a.y.dtype == DType::f32 && a.y.size() * a.lanes.shape[0] == a.lanes.size(), "ordered_sum: y is ",
        a.y.dtype, " ", a.y.shape, ", must be f32 with the elements of one lane of ", a.lanes.shape);
  check(is_float(a.lanes.dtype), "ordered_sum: lanes is ", a.lanes.dtype, ", must be f32, bf16 or f16");
  if (a.y.empty() || plans(stream, "ordered_sum", a, a.lanes)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::ordered_sum(stream, a);
  stream.run("ordered_sum", [a] { visit_float(a.lanes.dtype, [&]<class T>() { cpu::sum_lanes<T>(a); }); });
}

double min_bytes(const OrderedSum& a) { return bytes_of(a.lanes, a.y) + (a.accumulate ? bytes_of(a.y) : 0); }
double flops(const OrderedSum& a) {
  return static_cast<double>(a.lanes.size() - (a.accumulate ? 0 : a.y.size()));
}

}  // namespace flatshard
