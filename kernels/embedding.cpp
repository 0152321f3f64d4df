#include "kernels/embedding.h"

#include <algorithm>
#include <cstring>

#include "build_config.h"
#include "kernels/simd.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

// Checks a table and its indices against rows (N, C).
void check_table(const char* op, const char* table_name, const Tensor& table, DType dtype,
                 const char* index_name, const Tensor& index, const Tensor& rows) {
  check(table.dtype == dtype && table.shape.rank() == 2 && table.shape[-1] == rows.shape[-1], op, ": ",
        table_name, " is ", table.dtype, " ", table.shape, ", must be ", dtype, " (rows, ", rows.shape[-1],
        ")");
  check(index.dtype == DType::i32 && index.size() == rows.rows(), op, ": ", index_name, " is ", index.dtype,
        " ", index.shape, ", must be i32 with one element for each of ", rows.rows(), " rows");
}

void check_tokens(const Tensor& tokens, int64_t V) {
  const int32_t* token = tokens.as<int32_t>();
  for (int64_t n = 0; n < tokens.size(); ++n)
    check(token[n] >= 0 && token[n] < V, "token ", token[n], " at ", n, " is outside the vocabulary of ", V);
}

void check_positions(const Tensor& positions, int64_t P) {
  const int32_t* position = positions.as<int32_t>();
  for (int64_t n = 0; n < positions.size(); ++n)
    check(position[n] >= 0 && position[n] < P, "position ", position[n], " at ", n,
          " is outside the table of ", P);
}

}  // namespace

namespace cpu {
namespace {

using namespace simd;

constexpr int64_t kForwardRows = 32;
// A task of the backward pass owns this many columns of all rows and iterates over all tokens.
constexpr int64_t kBackwardColumns = 128;

const int32_t* indices_of(const Tensor& t) { return t.empty() ? nullptr : t.as<int32_t>(); }

template <class T>
void forward(const EmbeddingForward& a) {
  const int64_t C = a.y.shape[-1];
  const int32_t* token = indices_of(a.tokens);
  const int32_t* position = indices_of(a.positions);
  parallel_blocks(a.y.rows(), kForwardRows, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      T* y = a.y.as<T>() + n * C;
      const T* w = a.w.as<T>() + token[n] * C;
      if (a.p.empty()) {
        std::memcpy(static_cast<void*>(y), w, static_cast<size_t>(C) * sizeof(T));
        continue;
      }
      const T* p = a.p.as<T>() + position[n] * C;
      for_each_vector(
          C, [&](int64_t i, auto lanes) { store(y + i, load(w + i, lanes) + load(p + i, lanes), lanes); });
    }
  });
}

template <class T>
void backward(const EmbeddingBackward& a) {
  const int64_t C = a.dy.shape[-1], N = a.dy.rows();
  const int32_t* token = indices_of(a.tokens);
  const int32_t* position = indices_of(a.positions);
  parallel_blocks(C, kBackwardColumns, [&](int64_t begin, int64_t end) {
    const auto add = [&](float* sum, const T* dy) {
      for_each_vector(end - begin, [&](int64_t i, auto lanes) {
        store(sum + i, load(sum + i, lanes) + load(dy + i, lanes), lanes);
      });
    };
    for (int64_t n = 0; n < N; ++n) {
      const T* dy = a.dy.as<T>() + n * C + begin;
      if (!a.dw.empty()) add(a.dw.as<float>() + token[n] * C + begin, dy);
      if (!a.dp.empty()) add(a.dp.as<float>() + position[n] * C + begin, dy);
    }
  });
}

}  // namespace
}  // namespace cpu

void embedding_forward(Stream& stream, const EmbeddingForward& a) {
  check_table("embedding_forward", "w", a.w, a.y.dtype, "tokens", a.tokens, a.y);
  if (!a.p.empty()) check_table("embedding_forward", "p", a.p, a.y.dtype, "positions", a.positions, a.y);
  if (stream.planning() || a.y.empty()) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::embedding_forward(stream, a);
  stream.run("embedding_forward", [a] {
    check_tokens(a.tokens, a.w.shape[0]);
    if (!a.p.empty()) check_positions(a.positions, a.p.shape[0]);
    visit_float(a.y.dtype, [&]<class T>() { cpu::forward<T>(a); });
  });
}

void embedding_backward(Stream& stream, const EmbeddingBackward& a) {
  if (!a.dw.empty()) check_table("embedding_backward", "dw", a.dw, DType::f32, "tokens", a.tokens, a.dy);
  if (!a.dp.empty())
    check_table("embedding_backward", "dp", a.dp, DType::f32, "positions", a.positions, a.dy);
  if (stream.planning() || a.dy.empty()) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::embedding_backward(stream, a);
  stream.run("embedding_backward", [a] {
    if (!a.dw.empty()) check_tokens(a.tokens, a.dw.shape[0]);
    if (!a.dp.empty()) check_positions(a.positions, a.dp.shape[0]);
    visit_float(a.dy.dtype, [&]<class T>() { cpu::backward<T>(a); });
  });
}

double min_bytes(const EmbeddingForward& a) {
  const int64_t tables = a.p.empty() ? 1 : 2;
  return static_cast<double>((1 + tables) * a.y.bytes() + a.tokens.bytes() + a.positions.bytes());
}
double min_bytes(const EmbeddingBackward& a) {
  const int64_t touched = a.dy.size() + std::min(a.dy.size(), a.dp.size());
  return static_cast<double>(a.dy.bytes() + 8 * touched + a.tokens.bytes() + a.positions.bytes());
}
double flops(const EmbeddingForward& a) { return a.p.empty() ? 0.0 : static_cast<double>(a.y.size()); }
double flops(const EmbeddingBackward& a) {
  return static_cast<double>(a.dp.empty() ? a.dy.size() : 2 * a.dy.size());
}

}  // namespace flatshard
