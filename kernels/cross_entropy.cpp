#include "kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/simd_math.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

int64_t valid_columns(const CrossEntropyBackward& a) {
  return a.valid_vocab > 0 ? a.valid_vocab : a.logits.shape[-1];
}

template <class Args>
void check_arguments(const char* op, const Args& a) {
  check(is_float(a.logits.dtype), op, ": logits are ", a.logits.dtype, ", must be f32, bf16 or f16");
  check_each(op, "loss", a.loss, DType::f32, a.logits.rows(), "rows");
  check_each(op, "targets", a.targets, DType::i32, a.logits.rows(), "rows");
  check_each(op, "target_weights", a.target_weights, DType::f32, a.logits.rows(), "rows");
  check(a.valid_vocab >= 0 && a.valid_vocab <= a.logits.shape[-1], op, ": valid_vocab is ", a.valid_vocab,
        ", must be in [0, ", a.logits.shape[-1], "]");
}

}  // namespace

namespace cpu {
namespace {

using namespace simd;

void check_targets(const Tensor& targets, int64_t V) {
  const int32_t* target = targets.as<int32_t>();
  for (int64_t n = 0; n < targets.size(); ++n)
    check(target[n] < V, "target ", target[n], " at ", n, " is outside the vocabulary of ", V);
}

// Columns per update of the running maximum; so many fit the L1 cache.
constexpr int64_t kColumnBlock = 1024;
constexpr float kLowest = std::numeric_limits<float>::lowest();

// The result of one pass over a row.
struct RowSums {
  float max;   // kLowest when all logits are -infinity
  float exps;  // sum of exp(x - max)
};

// Each lane has its own running maximum; lanes are combined at the end.
template <class T>
RowSums row_sums(const T* x, int64_t V) {
  Floats max_so_far = splat(kLowest), exps{};
  for (int64_t begin = 0; begin < V; begin += kColumnBlock) {
    const T* block = x + begin;
    const int64_t n = std::min(kColumnBlock, V - begin);
    Floats top = max_so_far;
    for_each_vector(n, [&](int64_t i, auto lanes) {
      top = max(top, keep_lanes(load(block + i, lanes), lanes, kLowest));
    });
    exps *= exp(max_so_far - top);
    for_each_vector(n, [&](int64_t i, auto lanes) {
      exps += keep_lanes(exp(load(block + i, lanes) - top), lanes, 0.0f);
    });
    max_so_far = top;
  }
  const float highest = max(max_so_far);
  return {highest, sum(exps * exp(max_so_far - highest))};
}

// Computes dlogits of one row of V valid columns; x and dx may be the same.
template <class T, class D>
void row_gradient(D* dx, const T* x, int64_t V, int64_t target, float weight, const RowSums& sums,
                  float softcap) {
  const float scale = weight / sums.exps, inverse_cap = softcap > 0 ? 1 / softcap : 0;
  const auto gradient = [&](Floats v) { return exp(v - sums.max) * scale; };
  const auto slope = [&](Floats v) { return 1.0f - v * inverse_cap * (v * inverse_cap); };
  const Floats logit = splat(static_cast<float>(x[target]));
  const float at_target = gradient(logit)[0] - weight;
  if (softcap > 0) {
    for_each_vector(V, [&](int64_t i, auto lanes) {
      const Floats v = load(x + i, lanes);
      store(dx + i, gradient(v) * slope(v), lanes);
    });
    dx[target] = D(at_target * slope(logit)[0]);
    return;
  }
  for_each_vector(V, [&](int64_t i, auto lanes) { store(dx + i, gradient(load(x + i, lanes)), lanes); });
  dx[target] = D(at_target);
}

template <class T, class D>
void rows(const CrossEntropyBackward& a, int64_t begin, int64_t end) {
  const int64_t columns = a.logits.shape[-1], V = valid_columns(a);
  for (int64_t n = begin; n < end; ++n) {
    const int64_t target = a.targets.as<int32_t>()[n];
    float& loss = a.loss.as<float>()[n];
    D* dx = a.dlogits.empty() ? nullptr : a.dlogits.as<D>() + n * columns;
    if (target < 0) {
      loss = 0;
      if (dx) std::fill(dx, dx + columns, D(0.0f));
      continue;
    }
    const T* x = a.logits.as<T>() + n * columns;
    const float weight = a.target_weights.as<float>()[n];
    const RowSums sums = row_sums(x, V);
    loss = weight * (std::log(sums.exps) + (sums.max - static_cast<float>(x[target])));
    if (!dx) continue;
    row_gradient(dx, x, V, target, weight, sums, a.softcap);
    std::fill(dx + V, dx + columns, D(0.0f));
  }
}

// Computes no gradient if a.dlogits is empty.
void cross_entropy(const CrossEntropyBackward& a) {
  check_targets(a.targets, valid_columns(a));
  const int64_t row_block = std::max<int64_t>(1, 16384 / a.logits.shape[-1]);
  visit_float(a.logits.dtype, [&]<class T>() {
    visit_float(a.dlogits.dtype, [&]<class D>() {
      parallel_blocks(a.logits.rows(), row_block,
                      [&](int64_t begin, int64_t end) { rows<T, D>(a, begin, end); });
    });
  });
}

}  // namespace
}  // namespace cpu

void check_targets(Stream& stream, const Tensor& targets, int64_t V) {
  if (targets.empty()) return;
  if (stream.recorded())
    stream.note({.name = "check_targets",
                 .shape = {targets.size()},
                 .dtype = targets.dtype,
                 .bytes = static_cast<double>(targets.bytes())});
  if (stream.planning()) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::check_targets(stream, targets, V);
  stream.run("check_targets", [=] { cpu::check_targets(targets, V); });
}

void cross_entropy_forward(Stream& stream, const CrossEntropyForward& a) {
  check_arguments("cross_entropy_forward", a);
  if (a.logits.empty() || plans(stream, "cross_entropy_forward", a, a.logits)) return;
  const CrossEntropyBackward loss_alone{.dlogits = {},
                                        .loss = a.loss,
                                        .logits = a.logits,
                                        .targets = a.targets,
                                        .target_weights = a.target_weights,
                                        .valid_vocab = a.valid_vocab};
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::cross_entropy(stream, loss_alone);
  stream.run("cross_entropy_forward", [loss_alone] { cpu::cross_entropy(loss_alone); });
}

void cross_entropy_backward(Stream& stream, const CrossEntropyBackward& a) {
  check_arguments("cross_entropy_backward", a);
  check(a.dlogits.shape == a.logits.shape && is_float(a.dlogits.dtype), "cross_entropy_backward: dlogits is ",
        a.dlogits.dtype, " ", a.dlogits.shape, ", must have the shape of the logits, ", a.logits.shape);
  check(a.softcap >= 0, "cross_entropy_backward: softcap is ", a.softcap, ", must be 0 (none) or positive");
  if (a.logits.empty() || plans(stream, "cross_entropy_backward", a, a.logits)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::cross_entropy(stream, a);
  stream.run("cross_entropy_backward", [a] { cpu::cross_entropy(a); });
}

double min_bytes(const CrossEntropyForward& a) {
  return bytes_of(a.logits, a.loss, a.targets, a.target_weights);
}
double min_bytes(const CrossEntropyBackward& a) {
  return bytes_of(a.logits, a.dlogits, a.loss, a.targets, a.target_weights);
}
double flops(const CrossEntropyForward& a) { return 4.0 * static_cast<double>(a.logits.size()); }
double flops(const CrossEntropyBackward& a) { return 8.0 * static_cast<double>(a.logits.size()); }

}  // namespace flatshard
