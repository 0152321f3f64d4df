#include "kernels/attention_sink.h"

#include <algorithm>
#include <cmath>

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/simd.h"
#include "kernels/sink_terms.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

using namespace simd;

void check_sinks(const char* op, const Heads& o, const Tensor& lse, const Tensor& sinks) {
  check_elements(op, "sinks", sinks, o.of.dtype, o.count);
  check_elements(op, "lse", lse, DType::f32, o.count * o.rows());
}

constexpr int64_t kRowsOfTask = 256;

template <class T>
void forward(const AttentionSinkForward& a) {
  const int64_t rows = a.o.rows(), D = a.o.head_size();
  parallel_blocks(rows, kRowsOfTask, [&](int64_t begin, int64_t end) {
    for (int64_t head = 0; head < a.o.count; ++head)
      for (int64_t row = begin; row < end; ++row)
        add_sink(a.o.at<T>(row, head), D, a.lse.as<float>()[head * rows + row],
                 static_cast<float>(a.sinks.as<T>()[head]));
  });
}

// A task for each head, which adds up its rows in order.
template <class T>
void backward(const AttentionSinkBackward& a) {
  const int64_t rows = a.o.rows(), D = a.o.head_size();
  parallel_blocks(a.o.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t head = begin; head < end; ++head) {
      const float sink = static_cast<float>(a.sinks.as<T>()[head]);
      const float* const lse = a.lse.as<float>() + head * rows;
      double total = 0;
      for (int64_t row = 0; row < rows; ++row) {
        const T *const gradient = a.grad_o.at<T>(row, head), *const o = a.o.at<T>(row, head);
        Floats dot{};
        for_each_vector(
            D, [&](int64_t i, auto lanes) { dot = fma(load(gradient + i, lanes), load(o + i, lanes), dot); });
        total += static_cast<double>(std::exp(sink - lse[row]) * sum(dot));
      }
      float& dsink = a.dsinks.as<float>()[head];
      dsink = (a.accumulate ? dsink : 0.0f) - static_cast<float>(total);
    }
  });
}

}  // namespace

void attention_sink_forward(Stream& stream, const AttentionSinkForward& a) {
  check_sinks("attention_sink_forward", a.o, a.lse, a.sinks);
  if (a.lse.empty() || plans(stream, "attention_sink_forward", a, a.o.of)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::attention_sink_forward(stream, a);
  stream.run("attention_sink_forward", [a] { visit_float(a.o.of.dtype, [&]<class T>() { forward<T>(a); }); });
}

void attention_sink_backward(Stream& stream, const AttentionSinkBackward& a) {
  check_sinks("attention_sink_backward", a.o, a.lse, a.sinks);
  check_elements("attention_sink_backward", "dsinks", a.dsinks, DType::f32, a.o.count);
  check(a.grad_o.of.dtype == a.o.of.dtype && a.grad_o.count == a.o.count && a.grad_o.rows() == a.o.rows() &&
            a.grad_o.head_size() == a.o.head_size(),
        "attention_sink_backward: the gradient of o is ", a.grad_o.of.dtype, " ", a.grad_o.of.shape,
        ", o is ", a.o.of.dtype, " ", a.o.of.shape);
  if (plans(stream, "attention_sink_backward", a, a.o.of)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::attention_sink_backward(stream, a);
  stream.run("attention_sink_backward",
             [a] { visit_float(a.o.of.dtype, [&]<class T>() { backward<T>(a); }); });
}

double min_bytes(const AttentionSinkForward& a) {
  return 2 * static_cast<double>(a.o.bytes()) + 2 * bytes_of(a.lse) + bytes_of(a.sinks);
}
double min_bytes(const AttentionSinkBackward& a) {
  return 2 * static_cast<double>(a.o.bytes()) + bytes_of(a.lse, a.sinks, a.dsinks);
}
double flops(const AttentionSinkForward& a) {
  return static_cast<double>(a.lse.size() * (a.o.head_size() + 4));
}
double flops(const AttentionSinkBackward& a) {
  return static_cast<double>(a.lse.size() * (2 * a.o.head_size() + 3));
}

}  // namespace flatshard
