#include "kernels/ordered_sum.h"

#include <algorithm>

#include "kernels/simd.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

constexpr int64_t kBlock = 4096;
constexpr int kMaxLevels = 32;
constexpr int64_t kMaxLanes = int64_t{1} << (kMaxLevels - 1);

// The tree over `lanes` vectors, `stride` elements apart, as a binary counter: bit k of the number of lanes
// seen says whether a sum of 2^k lanes waits for its neighbour.
template <class T, class Lanes>
inline Floats tree_sum(const T* p, int64_t lane_count, int64_t stride, Lanes lanes) {
  Floats waiting[kMaxLevels];
  int top = 0;
  for (int64_t lane = 0; lane < lane_count; ++lane) {
    Floats sum = load(p + lane * stride, lanes);
    for (int64_t carry = lane; carry & 1; carry >>= 1) sum = waiting[--top] + sum;
    waiting[top++] = sum;
  }
  Floats sum = waiting[--top];
  while (top > 0) sum = waiting[--top] + sum;
  return sum;
}

template <class T>
void sum_lanes(const OrderedSum& a) {
  const int64_t n = a.y.size(), L = a.lanes.shape[0];
  parallel_blocks(n, kBlock, [&](int64_t begin, int64_t end) {
    const T* p = a.lanes.as<T>() + begin;
    float* y = a.y.as<float>() + begin;
    for_each_vector(end - begin, [&](int64_t i, auto lanes) {
      Floats sum;
      if (L == 1) {
        sum = load(p + i, lanes);
      } else if (L == 2) {
        sum = load(p + i, lanes) + load(p + n + i, lanes);
      } else {
        sum = tree_sum(p + i, L, n, lanes);
      }
      store(y + i, a.accumulate ? load(y + i, lanes) + sum : sum, lanes);
    });
  });
}

}  // namespace
}  // namespace cpu

void ordered_sum(Stream& stream, const OrderedSum& a) {
  check(a.lanes.shape.rank() >= 1 && a.lanes.shape[0] >= 1 && a.lanes.shape[0] <= cpu::kMaxLanes,
        "ordered_sum: lanes is ", a.lanes.shape, ", must begin with 1 to 2^31 lanes");
  check(a.y.dtype == DType::f32 && a.y.size() * a.lanes.shape[0] == a.lanes.size(), "ordered_sum: y is ",
        a.y.dtype, " ", a.y.shape, ", must be f32 with the elements of one of the lanes ", a.lanes.shape);
  check(is_float(a.lanes.dtype), "ordered_sum: lanes is ", a.lanes.dtype, ", must be f32, bf16 or f16");
  if (stream.planning() || a.y.empty()) return;
  stream.run("ordered_sum", [a] { visit_float(a.lanes.dtype, [&]<class T>() { cpu::sum_lanes<T>(a); }); });
}

double min_bytes(const OrderedSum& a) {
  return static_cast<double>(a.lanes.bytes() + (a.accumulate ? 2 : 1) * a.y.bytes());
}
double flops(const OrderedSum& a) {
  return static_cast<double>(a.lanes.size() - (a.accumulate ? 0 : a.y.size()));
}

}  // namespace flatshard
