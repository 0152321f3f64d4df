// Cross-entropy on the GPU. A thread block owns a row. The first pass computes its maximum and sum, where
// each thread has its own running maximum; the second pass writes the gradient, which may be in place of the
// logits.
//
// Memory bandwidth limits it: a logit in fp32 and its gradient in bf16 are 6 bytes and take 32 instructions
// of PTX, of a budget of 38 (flat.cuh). With 32 registers, two blocks of 1024 threads fit on an SM, with 32
// KiB in flight. The second pass finds rows of up to 58000 logits in an L2 cache of 60 MB. It reads longer
// ones again, which takes up to 2.7% of a step of Qwen2.5-0.5B; only a cluster of blocks could keep them.

#include <algorithm>
#include <limits>

#include "kernels/cross_entropy.h"
#include "kernels/cuda_util.cuh"

namespace flatshard::cuda {
namespace {

// The blocks are large, so that few rows are active and the second pass mostly hits the caches.
constexpr int kThreads = 1024;
constexpr float kLowest = std::numeric_limits<float>::lowest();

template <class T, class D>
struct Rows {
  D* dlogits;  // null: only the loss
  float* loss;
  const T* logits;
  const int32_t* targets;
  const float* target_weights;
  int64_t columns, V;  // V of the columns are valid
  float inverse_cap;   // 0: no soft cap
};

struct RowSums {
  float max;   // kLowest when all logits are -infinity
  float exps;  // sum of exp(x - max)
};

template <class T, int N>
__device__ inline RowSums row_sums(const T* x, int64_t V) {
  RowSums s{kLowest, 0.0f};
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < V; i += kThreads * N) {
    const Pack<T, N> v = load<T, N>(x + i);
    const int valid = V - i < N ? static_cast<int>(V - i) : N;
    float top = s.max;
    for (int j = 0; j < N; ++j)
      if (j < valid) top = fmaxf(top, to_float(v.element[j]));
    s.exps *= __expf(s.max - top);
    for (int j = 0; j < N; ++j)
      if (j < valid) s.exps += __expf(to_float(v.element[j]) - top);
    s.max = top;
  }
  const float max = block_max<kThreads>(s.max);
  return {max, block_sum<kThreads>(s.exps * __expf(s.max - max))};
}

// Writes gradient(column, logit) for the columns of a row that this thread handles, 0 in padding columns.
template <int N, class T, class D, class Gradient>
__device__ inline void write_row(D* dx, const T* x, int64_t columns, int64_t V, Gradient gradient) {
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < columns; i += kThreads * N) {
    const Pack<T, N> v = load<T, N>(x + i);
    Pack<D, N> out;
    for (int j = 0; j < N; ++j)
      out.element[j] = from_float<D>(i + j < V ? gradient(i + j, to_float(v.element[j])) : 0.0f);
    store<D, N>(dx + i, out);
  }
}

template <int N, class T, class D>
__global__ void __launch_bounds__(kThreads) cross_entropy_kernel(Rows<T, D> r) {
  const int64_t row = blockIdx.x, V = r.V;
  const T* x = r.logits + row * r.columns;
  D* dx = r.dlogits ? r.dlogits + row * r.columns : nullptr;
  const int64_t target = r.targets[row];
  require(target < V);
  if (target < 0) {
    if (threadIdx.x == 0) r.loss[row] = 0.0f;
    if (dx) write_row<N>(dx, x, r.columns, 0, [](int64_t, float) { return 0.0f; });
    return;
  }
  const float weight = r.target_weights[row], target_logit = to_float(x[target]);
  const RowSums sums = row_sums<T, N>(x, V);  // its barriers let all threads read the target's logit first
  if (threadIdx.x == 0) r.loss[row] = weight * (logf(sums.exps) + (sums.max - target_logit));
  if (!dx) return;
  const float scale = weight / sums.exps;
  const auto gradient = [&](int64_t column, float logit) {
    const float share = __fmul_rn(__expf(logit - sums.max), scale);  // rounded alike in every column
    return column == target ? share - weight : share;
  };
  if (r.inverse_cap == 0) return write_row<N>(dx, x, r.columns, V, gradient);
  write_row<N>(dx, x, r.columns, V, [&](int64_t column, float logit) {
    const float capped = logit * r.inverse_cap;
    return gradient(column, logit) * fmaf(-capped, capped, 1.0f);
  });
}

template <class T, class D>
void run(Stream& stream, const CrossEntropyBackward& a) {
  constexpr int kPack = std::min(kPackSize<T>, kPackSize<D>);
  const int64_t columns = a.logits.shape[-1];
  const Rows<T, D> rows{.dlogits = a.dlogits.empty() ? nullptr : a.dlogits.as<D>(),
                        .loss = a.loss.as<float>(),
                        .logits = a.logits.as<T>(),
                        .targets = a.targets.as<int32_t>(),
                        .target_weights = a.target_weights.as<float>(),
                        .columns = columns,
                        .V = a.valid_vocab > 0 ? a.valid_vocab : columns,
                        .inverse_cap = a.softcap > 0 ? 1 / a.softcap : 0};
  const auto blocks = static_cast<unsigned>(a.logits.rows());
  if (packable<T>(columns, rows.dlogits, rows.logits))
    cross_entropy_kernel<kPack><<<blocks, kThreads, 0, native(stream)>>>(rows);
  else
    cross_entropy_kernel<1><<<blocks, kThreads, 0, native(stream)>>>(rows);
  check_launch(stream, "cross_entropy");
}

__global__ void __launch_bounds__(kThreads)
    check_targets_kernel(const int32_t* targets, int64_t size, int64_t V) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(kThreads) + threadIdx.x;
  if (i < size) require(targets[i] < V);
}

}  // namespace

void check_targets(Stream& stream, const Tensor& targets, int64_t V) {
  const int64_t size = targets.size();
  check_targets_kernel<<<blocks_for(size, kThreads), kThreads, 0, native(stream)>>>(targets.as<int32_t>(),
                                                                                    size, V);
  check_launch(stream, "check_targets");
}

void cross_entropy(Stream& stream, const CrossEntropyBackward& a) {
  visit_float(a.logits.dtype, [&]<class T>() {
    if (a.dlogits.empty()) return run<T, T>(stream, a);
    visit_float(a.dlogits.dtype, [&]<class D>() { run<T, D>(stream, a); });
  });
}

}  // namespace flatshard::cuda
