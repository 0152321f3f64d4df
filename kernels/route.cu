// The router of a mixture of experts on the GPU. A warp owns a token; each lane has every 32nd logit.
//
// A choice is the next key below the one before: the logit as an integer that orders like it, and the index,
// so that there are no ties. It takes k passes over the logits, which the cache serves.

#include "kernels/cuda_util.cuh"
#include "kernels/route.h"
#include "runtime/targets.h"

namespace flatshard::cuda {
namespace {

constexpr int kThreads = 256, kTokens = kThreads / kWarp;

// Orders like the choice: larger logits first, equal ones by index, NaN last.
__device__ inline uint64_t key_of(float logit, int index) {
  const unsigned bits = __float_as_uint(logit + 0.0f);  // -0 is 0
  const unsigned ordered = isnan(logit) ? 0u : bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t{ordered} << 32 | (0xffffffffu - static_cast<unsigned>(index));
}
__device__ inline int index_of(uint64_t key) {
  return static_cast<int>(0xffffffffu - static_cast<unsigned>(key));
}

__device__ inline uint64_t warp_max_key(uint64_t key) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    const uint64_t other = __shfl_xor_sync(0xffffffffu, key, offset);
    key = other > key ? other : key;
  }
  return key;
}

__device__ inline int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
__device__ inline int64_t token() { return int64_t{blockIdx.x} * kTokens + threadIdx.x / kWarp; }

// exp(logits - largest) of a row, and their sum, in all lanes.
struct Softmax {
  float largest, sum;

  __device__ Softmax(const float* logits, int E) : largest(-3.402823466e38f), sum(0) {
    for (int e = lane(); e < E; e += kWarp) largest = fmaxf(largest, logits[e]);
    largest = warp_max(largest);
    for (int e = lane(); e < E; e += kWarp) sum += __expf(logits[e] - largest);
    sum = warp_sum(sum);
  }
  __device__ float of(float logit) const { return __fdividef(__expf(logit - largest), sum); }
  __device__ float lse() const { return largest + logf(sum); }
};

__device__ inline float sigmoid(float logit) { return __fdividef(1.0f, 1.0f + __expf(-logit)); }

struct Forward {
  int32_t* experts;
  float* weights;
  const float* logits;
  const int32_t* targets;  // may be null
  const float* bias;       // may be null
  int64_t tokens;
  int E, k, groups, top_groups;
  bool sigmoid, normalized, in_turn;
  float scale;

  // What experts are chosen by.
  __device__ __forceinline__ float score(const float* row, int e) const {
    if (!sigmoid) return row[e];
    return cuda::sigmoid(row[e]) + (bias ? bias[e] : 0.0f);
  }
};

// The groups that experts of a token are chosen from, as bits. A lane has a group.
__device__ __forceinline__ unsigned best_groups(const Forward& a, const float* logits) {
  if (a.groups == 1) return 1;
  const int size = a.E / a.groups, group = lane();
  uint64_t first = 0, second = 0;
  if (group < a.groups)
#pragma unroll 1
    for (int i = 0; i < size; ++i) {
      const int e = group * size + i;
      const uint64_t key = key_of(a.score(logits, e), e);
      if (key > first) {
        second = first;
        first = key;
      } else if (key > second) {
        second = key;
      }
    }
  uint64_t own = 0;
  if (group < a.groups)
    own = key_of(a.score(logits, index_of(first)) + a.score(logits, index_of(second)), group);
  unsigned groups = 0;
  for (int j = 0; j < a.top_groups; ++j) {
    const uint64_t best = warp_max_key(own);
    groups |= 1u << index_of(best);
    if (own == best) own = 0;
  }
  return groups;
}

__global__ void __launch_bounds__(kThreads, 1) route_forward_kernel(Forward a) {
  const int64_t row = token();
  if (row >= a.tokens) return;
  const float* const logits = a.logits + row * a.E;
  int32_t* const experts = a.experts + row * a.k;
  if (a.targets && a.targets[row] == kPaddingTarget) {
    for (int j = lane(); j < a.k; j += kWarp) {
      experts[j] = -1;
      a.weights[row * a.k + j] = 0;
    }
    return;
  }
  const unsigned groups = best_groups(a, logits);
  const int size = a.E / a.groups;
  uint64_t before = ~uint64_t{0};
  const auto in_turn = [&](int j) { return static_cast<int>((row * a.k + j) % a.E); };
  float sum = 0, first = 0;  // first: the largest chosen logit
  for (int j = 0; a.in_turn && j < a.k; ++j)
    first = j == 0 ? logits[in_turn(j)] : fmaxf(first, logits[in_turn(j)]);
  for (int j = 0; j < a.k; ++j) {
    uint64_t best = 0;
    for (int e = lane(); e < a.E; e += kWarp) {
      const uint64_t key = key_of(a.score(logits, e), e);
      if (key < before && key > best && (groups >> (e / size) & 1u) != 0) best = key;
    }
    before = warp_max_key(best);
    const int expert = a.in_turn ? in_turn(j) : index_of(before);
    const float logit = logits[expert];
    if (j == 0 && !a.in_turn) first = logit;
    sum += a.sigmoid ? sigmoid(logit) : __expf(logit - first);
    if (lane() == 0) experts[j] = expert;
  }
  __syncwarp();
  if (a.sigmoid) {
    const float factor = a.normalized ? __fdividef(a.scale, sum + 1e-20f) : a.scale;
    for (int j = lane(); j < a.k; j += kWarp) a.weights[row * a.k + j] = sigmoid(logits[experts[j]]) * factor;
    return;
  }
  const Softmax p(logits, a.E);
  for (int j = lane(); j < a.k; j += kWarp) {
    const float logit = logits[experts[j]];
    a.weights[row * a.k + j] = a.normalized ? __fdividef(__expf(logit - first), sum) : p.of(logit);
  }
}

struct Backward {
  float* dlogits;
  const float* dweights;
  const int32_t* experts;
  const float *weights, *logits;
  const float* factors;   // may be null
  const int32_t* counts;  // may be null
  float* losses;          // may be null
  int64_t tokens;
  int E, k;
  bool sigmoid, normalized;
  float scale;
};

__global__ void __launch_bounds__(kThreads) route_backward_kernel(Backward a) {
  const int64_t row = token();
  if (row >= a.tokens) return;
  const float *const logits = a.logits + row * a.E, *const weights = a.weights + row * a.k,
                     *const dweights = a.dweights + row * a.k;
  const int32_t* const experts = a.experts + row * a.k;
  float* const dlogits = a.dlogits + row * a.E;
  if (experts[0] < 0) {
    for (int e = lane(); e < a.E; e += kWarp) dlogits[e] = 0;
    return;
  }
  if (a.sigmoid) {
    float mean = 0;
    for (int j = lane(); a.normalized && j < a.k; j += kWarp) mean = fmaf(weights[j], dweights[j], mean);
    mean = __fdividef(warp_sum(mean), a.scale);
    for (int e = lane(); e < a.E; e += kWarp) dlogits[e] = 0;
    __syncwarp();
    for (int j = lane(); j < a.k; j += kWarp)
      dlogits[experts[j]] = weights[j] * (1 - sigmoid(logits[experts[j]])) * (dweights[j] - mean);
    return;
  }
  const Softmax p(logits, a.E);
  const float balance = a.factors && a.counts ? a.factors[0] : 0.0f, z = a.factors ? a.factors[1] : 0.0f;
  float mean = 0, balanced = 0;  // the means of the gradients of weights and of p
  for (int j = lane(); j < a.k; j += kWarp) mean = fmaf(weights[j], dweights[j], mean);
  mean = warp_sum(mean);
  if (balance != 0) {
    for (int e = lane(); e < a.E; e += kWarp)
      balanced = fmaf(p.of(logits[e]), balance * static_cast<float>(a.counts[e]), balanced);
    balanced = warp_sum(balanced);
  }
  const float lse = p.lse(), shared = 2 * z * lse - balanced - (a.normalized ? 0.0f : mean);
  if (a.losses && lane() == 0) {
    a.losses[2 * row] += balanced;
    a.losses[2 * row + 1] += z * lse * lse;
  }
  for (int e = lane(); e < a.E; e += kWarp) {
    const float of_count = balance != 0 ? balance * static_cast<float>(a.counts[e]) : 0.0f;
    dlogits[e] = p.of(logits[e]) * (of_count + shared);
  }
  __syncwarp();
  for (int j = lane(); j < a.k; j += kWarp)
    dlogits[experts[j]] += weights[j] * (a.normalized ? dweights[j] - mean : dweights[j]);
}

}  // namespace

void route_forward(Stream& stream, const RouteForward& a) {
  const Forward arguments{.experts = a.experts.as<int32_t>(),
                          .weights = a.weights.as<float>(),
                          .logits = a.logits.as<float>(),
                          .targets = a.targets.empty() ? nullptr : a.targets.as<int32_t>(),
                          .bias = a.bias.empty() ? nullptr : a.bias.as<float>(),
                          .tokens = a.logits.shape[0],
                          .E = static_cast<int>(a.logits.shape[1]),
                          .k = static_cast<int>(a.experts.shape[1]),
                          .groups = static_cast<int>(a.rule.groups),
                          .top_groups = static_cast<int>(a.rule.top_groups),
                          .sigmoid = a.rule.sigmoid,
                          .normalized = a.rule.normalized,
                          .in_turn = a.rule.in_turn,
                          .scale = a.rule.scale};
  route_forward_kernel<<<blocks_for(arguments.tokens, kTokens), kThreads, 0, native(stream)>>>(arguments);
  check_launch(stream, "route_forward");
}

void route_backward(Stream& stream, const RouteBackward& a) {
  const Backward arguments{.dlogits = a.dlogits.as<float>(),
                           .dweights = a.dweights.as<float>(),
                           .experts = a.experts.as<int32_t>(),
                           .weights = a.weights.as<float>(),
                           .logits = a.logits.as<float>(),
                           .factors = a.factors.empty() ? nullptr : a.factors.as<float>(),
                           .counts = a.counts.empty() ? nullptr : a.counts.as<int32_t>(),
                           .losses = a.losses.empty() ? nullptr : a.losses.as<float>(),
                           .tokens = a.logits.shape[0],
                           .E = static_cast<int>(a.logits.shape[1]),
                           .k = static_cast<int>(a.experts.shape[1]),
                           .sigmoid = a.rule.sigmoid,
                           .normalized = a.rule.normalized,
                           .scale = a.rule.scale};
  route_backward_kernel<<<blocks_for(arguments.tokens, kTokens), kThreads, 0, native(stream)>>>(arguments);
  check_launch(stream, "route_backward");
}

}  // namespace flatshard::cuda
