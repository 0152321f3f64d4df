#include "kernels/embedding.h"

#include <algorithm>
#include <cstring>

#include "build_config.h"
#include "kernels/index_sort.h"
#include "kernels/op.h"
#include "kernels/simd.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

// Checks a table and its indices against rows (N, C).
void check_table(const char* op, const char* table_name, const Tensor& table, DType dtype,
                 const char* index_name, const Tensor& index, const Tensor& rows) {
  check_table(op, table_name, table, dtype, rows.shape[-1]);
  check_each(op, index_name, index, DType::i32, rows.rows(), "rows");
}

// Checks that the rows of a table, if it is used, include all `numbers`.
void check_numbers(const char* name, const Tensor& numbers, const Tensor& table, const char* table_name) {
  if (table.empty()) return;
  const int32_t* number = numbers.as<int32_t>();
  for (int64_t n = 0; n < numbers.size(); ++n)
    check(number[n] >= 0 && number[n] < table.shape[0], name, " ", number[n], " at ", n, " is outside the ",
          table_name, " of ", table.shape[0]);
}

}  // namespace

namespace cpu {
namespace {

using namespace simd;

constexpr int64_t kForwardRows = 32;
// Rows and columns of a task of the backward pass.
constexpr int64_t kBackwardRows = 256, kBackwardColumns = 512;

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

// table[numbers[n]] += dy[n]. A task adds the rows of the numbers whose first occurrence is in its part of
// the sorted order.
template <class T>
void add_rows(const Tensor& table, const Tensor& dy, const Tensor& numbers, int32_t* scratch) {
  if (table.empty()) return;
  const int64_t C = dy.shape[-1], N = dy.rows();
  const int32_t* number = numbers.as<int32_t>();
  const int32_t* order = sort_indices(number, N, table.shape[0], scratch);
  const auto starts = [&](int64_t i) { return i == 0 || number[order[i]] != number[order[i - 1]]; };
  const auto add_columns = [&](int64_t begin, int64_t end, int64_t column) {
    const int64_t columns = std::min(kBackwardColumns, C - column);
    for (int64_t i = begin; i < end; ++i) {
      if (!starts(i)) continue;
      float* sum = table.as<float>() + number[order[i]] * C + column;
      for (int64_t k = i; k < N && (k == i || !starts(k)); ++k) {
        const T* row = dy.as<T>() + order[k] * C + column;
        for_each_vector(columns, [&](int64_t c, auto lanes) {
          store(sum + c, load(sum + c, lanes) + load(row + c, lanes), lanes);
        });
      }
    }
  };
  const int64_t slices = (C + kBackwardColumns - 1) / kBackwardColumns;
  parallel_for((N + kBackwardRows - 1) / kBackwardRows * slices, [&](int64_t task) {
    const int64_t begin = task / slices * kBackwardRows;
    add_columns(begin, std::min(begin + kBackwardRows, N), task % slices * kBackwardColumns);
  });
}

}  // namespace
}  // namespace cpu

void embedding_forward(Stream& stream, const EmbeddingForward& a) {
  check_table("embedding_forward", "w", a.w, a.y.dtype, "tokens", a.tokens, a.y);
  if (!a.p.empty()) check_table("embedding_forward", "p", a.p, a.y.dtype, "positions", a.positions, a.y);
  if (a.y.empty() || plans(stream, "embedding_forward", a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::embedding_forward(stream, a);
  stream.run("embedding_forward", [a] {
    check_numbers("token", a.tokens, a.w, "vocabulary");
    check_numbers("position", a.positions, a.p, "table");
    visit_float(a.y.dtype, [&]<class T>() { cpu::forward<T>(a); });
  });
}

void embedding_backward(Stream& stream, Arena& scratch, const EmbeddingBackward& a) {
  if (!a.dw.empty()) check_table("embedding_backward", "dw", a.dw, DType::f32, "tokens", a.tokens, a.dy);
  if (!a.dp.empty())
    check_table("embedding_backward", "dp", a.dp, DType::f32, "positions", a.positions, a.dy);
  const ArenaScope scope(scratch);
  const auto sort_of = [&](const Tensor& table) {
    return table.empty() ? 0 : sort_scratch(stream.device(), a.dy.rows(), table.shape[0]);
  };
  const Tensor sort = scratch.alloc(DType::i32, {std::max(sort_of(a.dw), sort_of(a.dp))});
  if (a.dy.empty() || plans(stream, "embedding_backward", a, a.dy)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::embedding_backward(stream, a, sort);
  stream.run("embedding_backward", [a, sort] {
    check_numbers("token", a.tokens, a.dw, "vocabulary");
    check_numbers("position", a.positions, a.dp, "table");
    visit_float(a.dy.dtype, [&]<class T>() {
      cpu::add_rows<T>(a.dw, a.dy, a.tokens, sort.as<int32_t>());
      cpu::add_rows<T>(a.dp, a.dy, a.positions, sort.as<int32_t>());
    });
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
