// RMSNorm and rotation of q and k on the GPU. A group of threads owns a row. For a norm of each head it is 8
// or 32 lanes of a warp: 8 lanes read either half of a head of 128 bf16 values by one access of 16 bytes
// each. For a norm of all heads it is a thread block. In the backward pass a thread block sums dw over its
// tokens: each group sums into its own row of shared memory (16 KiB for heads of 128 values), and the rows
// are added in order at the end; a group that is the whole block sums into its partial row.
//
// Instruction issue limits it (flat.cuh): for heads of 128 bf16 values, an element takes 31 instructions of a
// budget of 25, with 61 registers, and in the backward pass 51 of 38, with 118.

#include <bit>

#include "kernels/norm_types.h"
#include "kernels/qk_norm.h"
#include "kernels/row_blocks.cuh"

namespace flatshard::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kWidestOfWarp = 1024;  // widest row that 32 lanes own: 8 rows of sums take 32 KiB

// The sum over the threads of a group, in each of them.
template <int kLanes>
__device__ float group_sum(float value) {
  if constexpr (kLanes == kThreads)
    return block_sum<kThreads>(value);
  else
    return warp_sum<kLanes>(value);
}

struct Rotation {
  const int32_t* positions;
  const float* table;  // null: no rotation
  int64_t table_rows, D;

  // The cosines of a token; its sines follow.
  __device__ const float* of(int64_t token) const {
    if (!table) return nullptr;
    const int32_t position = positions[token];
    require(position >= 0 && position < table_rows);
    return table + position * D;
  }
};

// N pairs of elements of a head, D/2 apart.
template <int N>
struct Pairs {
  float a[N], b[N];

  // Rotates the pairs, of which the first is pair i of the head, by `sign` times the angle.
  __device__ void turn(const float* cosines, int64_t half, int64_t i, float sign) {
    if (!cosines) return;
    const auto cosine = load_floats<float, N>(cosines + i), sine = load_floats<float, N>(cosines + half + i);
    for (int j = 0; j < N; ++j) {
      const float x = a[j], y = b[j], s = sine.element[j] * sign;
      a[j] = fmaf(x, cosine.element[j], -y * s);
      b[j] = fmaf(y, cosine.element[j], x * s);
    }
  }
};

template <class T, int N>
__device__ Pairs<N> load_pairs(const T* at, int64_t half) {
  const auto a = load_floats<T, N>(at), b = load_floats<T, N>(at + half);
  Pairs<N> pairs;
  for (int j = 0; j < N; ++j) {
    pairs.a[j] = a.element[j];
    pairs.b[j] = b.element[j];
  }
  return pairs;
}

// Stores a pack by one access. The compiler would split it, as its elements come from two branches.
template <class T, int N>
__device__ void store_whole(T* at, const Pack<T, N>& pack) {
  if constexpr (sizeof(pack) == 16)
    *reinterpret_cast<uint4*>(at) = std::bit_cast<uint4>(pack);
  else
    store<T, N>(at, pack);
}

template <class T, int N>
__device__ void store_pairs(T* at, int64_t half, const Pairs<N>& pairs) {
  Pack<T, N> a, b;
  for (int j = 0; j < N; ++j) {
    a.element[j] = from_float<T>(pairs.a[j]);
    b.element[j] = from_float<T>(pairs.b[j]);
  }
  store_whole(at, a);
  store_whole(at + half, b);
}

// Calls body(column, i) for the packs of N pairs of a row that this lane handles: the column of the first
// element, and its index i in its head. It computes in 32 bits because 64-bit divisions are slow.
template <int N, int kLanes, class Body>
__device__ void for_each_pairs(int64_t width, int64_t half_head, Body body) {
  const unsigned pairs = static_cast<unsigned>(width) / 2, half = static_cast<unsigned>(half_head);
  for (unsigned p = threadIdx.x % kLanes * N; p < pairs; p += kLanes * N) {
    const unsigned head = p / half, i = p - head * half;
    body(head * 2 * half + i, i);
  }
}

template <class T, class W>
struct Forward {
  T* y;
  float* rstd;
  const T* x;
  const W *wq, *wk;
  Rotation rotation;
  QkRows rows;
  int64_t count, x_stride, y_stride;  // count: number of rows of all tokens
  float eps, offset;
  bool round_xhat;
};

template <class T, class W, int N, int kLanes>
__global__ void __launch_bounds__(kThreads) forward_kernel(Forward<T, W> f) {
  constexpr int kGroups = kThreads / kLanes;
  const int64_t index = static_cast<int64_t>(blockIdx.x) * kGroups + threadIdx.x / kLanes;
  const bool exists = index < f.count;  // the lanes of a group without a row take part in the sums
  const int64_t token = exists ? index / f.rows.rows() : 0, row = exists ? index % f.rows.rows() : 0;
  const int64_t width = f.rows.width(row), column = f.rows.column(row), half = f.rows.D / 2;
  const T* x = f.x + token * f.x_stride + column;
  float squares = 0.0f;
  for_each_pairs<N, kLanes>(width, half, [&](int64_t at, int64_t) {
    const Pairs<N> v = load_pairs<T, N>(x + at, half);
    for (int j = 0; j < N; ++j) squares = fmaf(v.a[j], v.a[j], fmaf(v.b[j], v.b[j], squares));
  });
  const float rstd = 1.0f / sqrtf(group_sum<kLanes>(squares) / static_cast<float>(width) + f.eps);
  if (!exists) return;
  if (threadIdx.x % kLanes == 0) f.rstd[index] = rstd;
  const W* w = f.rows.is_q(row) ? f.wq : f.wk;
  T* y = f.y + token * f.y_stride + column;
  const float* cosines = f.rotation.of(token);
  const auto normed = [&](float value, float weight) {
    const float xhat = value * rstd;
    return (f.round_xhat ? round_to<T>(xhat) : xhat) * (weight + f.offset);
  };
  for_each_pairs<N, kLanes>(width, half, [&](int64_t at, int64_t i) {
    Pairs<N> v = load_pairs<T, N>(x + at, half);
    const Pairs<N> weight = load_pairs<W, N>(w + at, half);
    for (int j = 0; j < N; ++j) {
      v.a[j] = normed(v.a[j], weight.a[j]);
      v.b[j] = normed(v.b[j], weight.b[j]);
    }
    v.turn(cosines, half, i, 1.0f);
    store_pairs<T, N>(y + at, half, v);
  });
}

template <class T, class W>
struct Backward {
  T* dx;
  float *partial_dwq, *partial_dwk;  // (blocks, width); null: dw is not wanted
  const T *dy, *x;
  const W *wq, *wk;
  const float* rstd;
  Rotation rotation;
  QkRows rows;
  int64_t tokens, block;  // number of all tokens, and of the tokens of a thread block
  int64_t dx_stride, dy_stride, x_stride;
  float offset;
  bool round_xhat;
};

// sums (PartialRow order) += values for columns [at, at + N).
template <int N>
__device__ void add_to(float* sums, int64_t width, int64_t at, const float* values) {
  using Partial = PartialRow<N>;
  const Partial partial{static_cast<int>(width)};
  for (int piece = 0; piece < Partial::kPieces; ++piece) {
    float* to = sums + partial.place(static_cast<int>(at), piece);
    auto sum = load<float, Partial::kPiece>(to);
    for (int j = 0; j < Partial::kPiece; ++j) sum.element[j] += values[piece * Partial::kPiece + j];
    store<float, Partial::kPiece>(to, sum);
  }
}

// Writes dx of one row, and adds g xhat to `sums` unless it is null.
template <class T, class W, int N, int kLanes>
__device__ void backward_row(const Backward<T, W>& b, int64_t token, int64_t row, bool exists, float* sums) {
  const int64_t width = b.rows.width(row), column = b.rows.column(row), half = b.rows.D / 2;
  const T *x = b.x + token * b.x_stride + column, *dy = b.dy + token * b.dy_stride + column;
  const W* w = b.rows.is_q(row) ? b.wq : b.wk;
  const float* cosines = b.rotation.of(token);
  const float rstd = b.rstd[token * b.rows.rows() + row];
  float dot = 0.0f;
  if (exists)
    for_each_pairs<N, kLanes>(width, half, [&](int64_t at, int64_t i) {
      const Pairs<N> v = load_pairs<T, N>(x + at, half), weight = load_pairs<W, N>(w + at, half);
      Pairs<N> g = load_pairs<T, N>(dy + at, half), dw;
      g.turn(cosines, half, i, -1.0f);
      const auto add = [&](float value, float gradient, float factor) {
        const float xhat = value * rstd;
        dot = fmaf(gradient * (factor + b.offset), xhat, dot);
        return gradient * (b.round_xhat ? round_to<T>(xhat) : xhat);
      };
      for (int j = 0; j < N; ++j) {
        dw.a[j] = add(v.a[j], g.a[j], weight.a[j]);
        dw.b[j] = add(v.b[j], g.b[j], weight.b[j]);
      }
      if (!sums) return;
      add_to<N>(sums, width, at, dw.a);
      add_to<N>(sums, width, at + half, dw.b);
    });
  const float mean = group_sum<kLanes>(dot) / static_cast<float>(width);
  if (!exists) return;
  T* dx = b.dx + token * b.dx_stride + column;
  for_each_pairs<N, kLanes>(width, half, [&](int64_t at, int64_t i) {
    const Pairs<N> v = load_pairs<T, N>(x + at, half), weight = load_pairs<W, N>(w + at, half);
    Pairs<N> g = load_pairs<T, N>(dy + at, half);
    g.turn(cosines, half, i, -1.0f);
    for (int j = 0; j < N; ++j) {
      g.a[j] = rstd * (g.a[j] * (weight.a[j] + b.offset) - v.a[j] * rstd * mean);
      g.b[j] = rstd * (g.b[j] * (weight.b[j] + b.offset) - v.b[j] * rstd * mean);
    }
    store_pairs<T, N>(dx + at, half, g);
  });
}

// Computes rows [first, first + count) of each token of the block, and their part of partial_dw.
template <class T, class W, int N, int kLanes>
__device__ void backward_rows(const Backward<T, W>& b, int64_t first, int64_t count, float* partial) {
  constexpr int kGroups = kThreads / kLanes;
  extern __shared__ float4 shared[];
  const int64_t width = b.rows.width(first), group = threadIdx.x / kLanes;
  float* sums = !partial       ? nullptr
                : kGroups == 1 ? partial
                               : reinterpret_cast<float*>(shared) + group * width;
  if (sums) {
    for (int64_t i = threadIdx.x % kLanes; i < width; i += kLanes) sums[i] = 0.0f;
    __syncthreads();
  }
  const int64_t begin = blockIdx.x * b.block, end = begin + b.block < b.tokens ? begin + b.block : b.tokens;
  const int64_t rows = (end - begin) * count;
  for (int64_t start = 0; start < rows; start += kGroups) {
    const bool exists = start + group < rows;
    const int64_t index = exists ? start + group : start;
    backward_row<T, W, N, kLanes>(b, begin + index / count, first + index % count, exists, sums);
  }
  if (kGroups == 1 || !sums) return;
  __syncthreads();
  for (int64_t i = threadIdx.x; i < width; i += kThreads) {
    float sum = 0.0f;
    for (int64_t g = 0; g < kGroups; ++g) sum += reinterpret_cast<const float*>(shared)[g * width + i];
    partial[i] = sum;
  }
  __syncthreads();
}

template <class T, class W, int N, int kLanes>
__global__ void __launch_bounds__(kThreads, 2) backward_kernel(Backward<T, W> b) {
  float* of_q = b.partial_dwq ? b.partial_dwq + blockIdx.x * b.rows.q_width : nullptr;
  float* of_k = b.partial_dwk ? b.partial_dwk + blockIdx.x * b.rows.k_width : nullptr;
  backward_rows<T, W, N, kLanes>(b, 0, b.rows.q_rows, of_q);
  backward_rows<T, W, N, kLanes>(b, b.rows.q_rows, b.rows.k_rows, of_k);
}

// Calls launch.operator()<lanes>() with the number of lanes of a row.
template <int N, class Launch>
void visit_lanes(const QkRows& rows, Launch&& launch) {
  const int64_t width = rows.q_width > rows.k_width ? rows.q_width : rows.k_width, packs = width / 2 / N;
  if constexpr (N > 1)
    if (packs <= 8) return launch.template operator()<8>();
  if (width <= kWidestOfWarp) return launch.template operator()<32>();
  launch.template operator()<kThreads>();
}

Rotation rotation_of(const Tensor& positions, const Tensor& table, const QkRows& rows) {
  if (table.empty()) return {nullptr, nullptr, 0, rows.D};
  return {positions.as<int32_t>(), table.as<float>(), table.shape[0], rows.D};
}

// Calls launch.operator()<T, W, N>().
template <class Launch, class... Pointers>
void visit(const Tensor& x, const Tensor& w, const QkRows& rows, std::initializer_list<int64_t> strides,
           Launch&& launch, Pointers... pointers) {
  visit_norm(x.dtype, w.dtype, [&]<class T, class W>() {
    bool packs = packable<T>(rows.D / 2, pointers...);
    for (const int64_t stride : strides) packs = packs && packable<T>(stride);
    packs ? launch.template operator()<T, W, kPackSize<T>>() : launch.template operator()<T, W, 1>();
  });
}

int64_t token_stride(int64_t stride, const Tensor& x) { return stride ? stride : x.shape[1] * x.shape[2]; }

}  // namespace

void qk_norm_forward(Stream& stream, const QkNormForward& a, const QkRows& rows) {
  const int64_t x_stride = token_stride(a.x_stride, a.x), y_stride = token_stride(0, a.x);
  const int64_t count = a.x.shape[0] * rows.rows();
  visit(
      a.x, a.wq, rows, {x_stride, y_stride},
      [&]<class T, class W, int N>() {
        const Forward<T, W> f{a.y.as<T>(),  a.rstd.as<float>(),
                              a.x.as<T>(),  a.wq.as<W>(),
                              a.wk.as<W>(), rotation_of(a.positions, a.table, rows),
                              rows,         count,
                              x_stride,     y_stride,
                              a.eps,        a.offset,
                              a.round_xhat};
        visit_lanes<N>(rows, [&]<int kLanes>() {
          constexpr int64_t kGroups = kThreads / kLanes;
          forward_kernel<T, W, N, kLanes><<<blocks_for(count, kGroups), kThreads, 0, native(stream)>>>(f);
        });
        check_launch(stream, "qk_norm_forward");
      },
      a.y.data, a.x.data, a.wq.data, a.wk.data, a.table.data);
}

void qk_norm_backward(Stream& stream, const QkNormBackward& a, const QkRows& rows, int64_t blocks,
                      const Tensor& partial_dw) {
  // partial_dw has the rows of q's partial sums, then the rows of k's.
  const auto part_of = [&](const Tensor& dw, int64_t width, int64_t first) {
    if (dw.empty()) return Tensor{};
    return Tensor{partial_dw.as<float>() + first, DType::f32, {blocks, width}, partial_dw.device};
  };
  const Tensor partial_dwq = part_of(a.dwq, rows.q_width, 0),
               partial_dwk = part_of(a.dwk, rows.k_width, blocks * rows.q_width);
  const int64_t tokens = a.x.shape[0], dx_stride = token_stride(a.dx_stride, a.x),
                dy_stride = token_stride(a.dy_stride, a.x), x_stride = token_stride(a.x_stride, a.x);
  visit(
      a.x, a.wq, rows, {dx_stride, dy_stride, x_stride},
      [&]<class T, class W, int N>() {
        const Backward<T, W> b{a.dx.as<T>(),
                               partial_dwq.as<float>(),
                               partial_dwk.as<float>(),
                               a.dy.as<T>(),
                               a.x.as<T>(),
                               a.wq.as<W>(),
                               a.wk.as<W>(),
                               a.rstd.as<float>(),
                               rotation_of(a.positions, a.table, rows),
                               rows,
                               tokens,
                               (tokens + blocks - 1) / blocks,
                               dx_stride,
                               dy_stride,
                               x_stride,
                               a.offset,
                               a.round_xhat};
        visit_lanes<N>(rows, [&]<int kLanes>() {
          constexpr int64_t kGroups = kThreads / kLanes;
          const int64_t width = rows.q_width > rows.k_width ? rows.q_width : rows.k_width;
          const auto shared =
              static_cast<size_t>(kGroups == 1 || partial_dw.empty() ? 0 : kGroups * width * 4);
          backward_kernel<T, W, N, kLanes>
              <<<static_cast<unsigned>(blocks), kThreads, shared, native(stream)>>>(b);
        });
        check_launch(stream, "qk_norm_backward");
        const auto add = [&](const Tensor& dw, const Tensor& partials) {
          if (dw.empty()) return;
          add_partials<N>(stream, "qk_norm_backward: add_partials", {dw.as<float>(), nullptr}, partials,
                          blocks, dw.size(), a.accumulate);
        };
        add(a.dwq, partial_dwq);
        add(a.dwk, partial_dwk);
      },
      a.dx.data, a.dy.data, a.x.data, a.wq.data, a.wk.data, a.table.data, partial_dw.data);
}

}  // namespace flatshard::cuda
