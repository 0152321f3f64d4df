// The rows of a mixture of experts on the GPU, with the same bits as on the CPU but for sums over columns.
//
// Sorting: a block for each expert reads all choices, counts its own, and, once the segments are known,
// places them in order. That is E N k reads of a table that fits the L2 cache: 67 MB for 128 experts and
// 131,072 choices. No atomics, so that the order is that of the tokens.

#include "kernels/expert_rows.h"
#include "kernels/flat.cuh"
#include "kernels/grouped_product.h"

namespace flatshard::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / kWarp;

struct Sort {
  int32_t *offsets, *rows, *places, *counts, *step_counts;  // counts may be null
  const int32_t* experts;
  int64_t choices, row_count;
  int E, k;
};

// offsets[e + 1] = the number of choices of expert e.
__global__ void __launch_bounds__(kThreads) count_choices_kernel(Sort a) {
  __shared__ int warps[kWarps];
  const int expert = static_cast<int>(blockIdx.x);
  int count = 0;
  for (int64_t i = threadIdx.x; i < a.choices; i += kThreads) count += a.experts[i] == expert ? 1 : 0;
  count = __reduce_add_sync(0xffffffffu, count);
  if (threadIdx.x % kWarp == 0) warps[threadIdx.x / kWarp] = count;
  __syncthreads();
  if (threadIdx.x != 0) return;
  int total = 0;
  for (int w = 0; w < kWarps; ++w) total += warps[w];
  a.offsets[expert + 1] = total;
  if (a.counts) a.counts[expert] += total;
  if (a.step_counts) a.step_counts[expert] += total;
}

// Turns the counts into offsets, in one block with E integers of shared memory.
__global__ void __launch_bounds__(kThreads) place_segments_kernel(Sort a) {
  extern __shared__ int ends[];
  for (int e = static_cast<int>(threadIdx.x); e < a.E; e += kThreads) ends[e] = a.offsets[e + 1];
  __syncthreads();
  if (threadIdx.x == 0) {
    int begin = 0;
    for (int e = 0; e < a.E; ++e) {
      constexpr int kPiece = static_cast<int>(kSegmentRows);
      begin += (ends[e] + kPiece - 1) / kPiece * kPiece;
      ends[e] = begin;
    }
    a.offsets[0] = 0;
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < a.E; e += kThreads) a.offsets[e + 1] = ends[e];
}

// Block e < E writes the segment of expert e. Block E writes the rows behind the last segment, and the places
// of choices without a row.
__global__ void __launch_bounds__(kThreads) place_choices_kernel(Sort a) {
  __shared__ int warps[kWarps];
  const int expert = static_cast<int>(blockIdx.x);
  int next = a.offsets[expert];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const unsigned below = (1u << threadIdx.x % kWarp) - 1;
  for (int64_t first = 0; expert < a.E && first < a.choices; first += kThreads) {
    const int64_t i = first + threadIdx.x;
    const bool mine = i < a.choices && a.experts[i] == expert;
    const unsigned of_warp = __ballot_sync(0xffffffffu, mine);
    if (threadIdx.x % kWarp == 0) warps[warp] = __popc(of_warp);
    __syncthreads();
    int before = 0, all = 0;
    for (int w = 0; w < kWarps; ++w) {
      before += w < warp ? warps[w] : 0;
      all += warps[w];
    }
    if (mine) {
      const int row = next + before + __popc(of_warp & below);
      a.rows[row] = static_cast<int32_t>(i / a.k);
      a.places[i] = row;
    }
    next += all;
    __syncthreads();  // the array is written again
  }
  for (int64_t i = threadIdx.x; expert == a.E && i < a.choices; i += kThreads)
    if (a.experts[i] < 0) a.places[i] = -1;
  const int64_t end = expert < a.E ? a.offsets[expert + 1] : a.row_count;
  for (int64_t row = next + static_cast<int64_t>(threadIdx.x); row < end; row += kThreads) a.rows[row] = -1;
}

struct Part {
  int32_t* offsets;
  const int32_t* all_offsets;  // from the part's first expert on
  int64_t row_count;
  int n, k = 0;
  int32_t *places = nullptr, *rows = nullptr, *choices = nullptr;
  const int32_t *all_rows = nullptr, *all_places = nullptr;
};

// A thread owns a row of the part.
__global__ void __launch_bounds__(kThreads) expert_part_kernel(Part a) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int32_t begin = a.all_offsets[0], count = a.all_offsets[a.n] - begin;
  for (int64_t e = i; e <= a.n; e += int64_t{gridDim.x} * kThreads) a.offsets[e] = a.all_offsets[e] - begin;
  if (i >= a.row_count) return;
  const int32_t place = i < count ? begin + static_cast<int32_t>(i) : -1;
  const int32_t token = i < count ? a.all_rows[place] : -1;
  int32_t choice = -1;
  for (int32_t j = 0; token >= 0 && j < a.k; ++j)
    if (a.all_places[token * a.k + j] == place) choice = token * a.k + j;
  a.places[i] = place;
  a.rows[i] = token;
  a.choices[i] = choice;
}

template <class T>
struct Combine {
  T* y;
  const T *x, *addend;  // addend may be null
  const int32_t* places;
  const float* weights;  // null: 1
  PackedRows rows;       // the rows of y
  int k;

  template <int N>
  __device__ Pack<T, N> read(int64_t i) const {
    const int64_t token = rows.row(i), column = i - token * rows.width;
    float sums[N] = {};
    for (int j = 0; j < k; ++j) {
      const int64_t choice = token * k + j;
      if (places[choice] < 0) continue;
      const Pack<T, N> v = load<T, N>(x + places[choice] * rows.width + column);
      const float weight = weights ? weights[choice] : 1.0f;
      for (int n = 0; n < N; ++n) sums[n] = fmaf(weight, to_float(v.element[n]), sums[n]);
    }
    Pack<T, N> out;
    const Pack<T, N> more = addend ? load<T, N>(addend + i) : Pack<T, N>{};
    for (int n = 0; n < N; ++n)
      out.element[n] = from_float<T>(addend ? to_float(more.element[n]) + sums[n] : sums[n]);
    return out;
  }
  template <int N>
  __device__ void write(int64_t i, const Pack<T, N>& out) const {
    store<T, N>(y + i, out);
  }
};

template <class T>
struct Weigh {
  float* dweights;
  T *da, *a;
  const int32_t* places;  // null: choice i has row i
  const float* weights;
  int64_t choices, F;
};

// A warp owns a choice.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) weigh_rows_kernel(Weigh<T> w) {
  const int64_t choice = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (choice >= w.choices) return;
  const int64_t row = w.places ? w.places[choice] : choice;
  if (row < 0) {
    if (threadIdx.x % kWarp == 0) w.dweights[choice] = 0;
    return;
  }
  T *const da = w.da + row * w.F, *const a = w.a + row * w.F;
  const float weight = w.weights[choice];
  float dot = 0;
  for (int64_t f = int64_t{threadIdx.x % kWarp} * N; f < w.F; f += kWarp * N) {
    Pack<T, N> gradient = load<T, N>(da + f), unit = load<T, N>(a + f);
    for (int n = 0; n < N; ++n) {
      const float g = to_float(gradient.element[n]), u = to_float(unit.element[n]);
      dot = fmaf(g, u, dot);
      gradient.element[n] = from_float<T>(g * weight);
      unit.element[n] = from_float<T>(u * weight);
    }
    store<T, N>(da + f, gradient);
    store<T, N>(a + f, unit);
  }
  dot = warp_sum(dot);
  if (threadIdx.x % kWarp == 0) w.dweights[choice] = dot;
}

template <class T>
struct GateForward {
  T* y;
  const T *x, *addend;  // addend may be null
  const float* gate;
  PackedRows rows;

  template <int N>
  struct Inputs {
    float share;
    Pack<T, N> x, addend;
  };
  template <int N>
  __device__ Inputs<N> read(int64_t i) const {
    return {sigmoid(gate[rows.row(i)]), load<T, N>(x + i), addend ? load<T, N>(addend + i) : Pack<T, N>{}};
  }
  template <int N>
  __device__ void write(int64_t i, const Inputs<N>& in) const {
    Pack<T, N> out;
    for (int n = 0; n < N; ++n)
      out.element[n] =
          from_float<T>(fmaf(in.share, to_float(in.x.element[n]), to_float(in.addend.element[n])));
    store<T, N>(y + i, out);
  }
};

template <class T>
struct GateBackward {
  T* dx;
  float* dgate;
  const T *dy, *x;
  const float* gate;
  int64_t tokens, C;
};

// A warp owns a token.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) gate_rows_backward_kernel(GateBackward<T> g) {
  const int64_t token = int64_t{blockIdx.x} * kWarps + threadIdx.x / kWarp;
  if (token >= g.tokens) return;
  const float share = sigmoid(g.gate[token]);
  float dot = 0;
  for (int64_t c = int64_t{threadIdx.x % kWarp} * N; c < g.C; c += kWarp * N) {
    const Pack<T, N> dy = load<T, N>(g.dy + token * g.C + c), x = load<T, N>(g.x + token * g.C + c);
    Pack<T, N> dx;
    for (int n = 0; n < N; ++n) {
      dot = fmaf(to_float(dy.element[n]), to_float(x.element[n]), dot);
      dx.element[n] = from_float<T>(to_float(dy.element[n]) * share);
    }
    store<T, N>(g.dx + token * g.C + c, dx);
  }
  dot = warp_sum(dot);
  if (threadIdx.x % kWarp == 0) g.dgate[token] = dot * (share * (1 - share));
}

}  // namespace

void expert_rows(Stream& stream, const ExpertRows& a) {
  const Sort sort{.offsets = a.offsets.as<int32_t>(),
                  .rows = a.rows.as<int32_t>(),
                  .places = a.places.as<int32_t>(),
                  .counts = a.counts.empty() ? nullptr : a.counts.as<int32_t>(),
                  .step_counts = a.step_counts.empty() ? nullptr : a.step_counts.as<int32_t>(),
                  .experts = a.experts.as<int32_t>(),
                  .choices = a.experts.size(),
                  .row_count = a.rows.size(),
                  .E = static_cast<int>(a.offsets.size() - 1),
                  .k = static_cast<int>(a.experts.shape[1])};
  const auto experts = static_cast<unsigned>(sort.E);
  count_choices_kernel<<<experts, kThreads, 0, native(stream)>>>(sort);
  check_launch(stream, "count_choices");
  place_segments_kernel<<<1, kThreads, experts * sizeof(int), native(stream)>>>(sort);
  check_launch(stream, "place_segments");
  place_choices_kernel<<<experts + 1, kThreads, 0, native(stream)>>>(sort);
  check_launch(stream, "place_choices");
}

void expert_part(Stream& stream, const ExpertPart& a) {
  Part part{.offsets = a.offsets.as<int32_t>(),
            .all_offsets = a.all_offsets.as<int32_t>() + a.first,
            .row_count = a.rows.size(),
            .n = static_cast<int>(a.offsets.size() - 1)};
  if (!a.rows.empty()) {
    part.places = a.places.as<int32_t>();
    part.rows = a.rows.as<int32_t>();
    part.choices = a.choices.as<int32_t>();
    part.all_rows = a.all_rows.as<int32_t>();
    part.all_places = a.all_places.as<int32_t>();
    part.k = static_cast<int>(a.all_places.shape[1]);
  }
  const unsigned blocks = blocks_for(std::max<int64_t>(part.row_count, 1), kThreads);
  expert_part_kernel<<<blocks, kThreads, 0, native(stream)>>>(part);
  check_launch(stream, "expert_part");
}

void combine_rows(Stream& stream, const CombineRows& a) {
  visit_float(a.y.dtype, [&]<class T>() {
    const int64_t C = a.y.shape[1];
    const Combine<T> op{.y = a.y.as<T>(),
                        .x = a.x.as<T>(),
                        .addend = a.addend.empty() ? nullptr : a.addend.as<T>(),
                        .places = a.places.as<int32_t>(),
                        .weights = a.weights.empty() ? nullptr : a.weights.as<float>(),
                        .rows = {C, C},
                        .k = static_cast<int>(a.places.shape[1])};
    launch_flat<kPackSize<T>>(stream, "combine_rows", op, a.y.size(), packable<T>(C, op.y, op.x, op.addend));
  });
}

void weigh_rows(Stream& stream, const WeighRows& a) {
  visit_float(a.a.dtype, [&]<class T>() {
    const Weigh<T> w{.dweights = a.dweights.as<float>(),
                     .da = a.da.as<T>(),
                     .a = a.a.as<T>(),
                     .places = a.places.empty() ? nullptr : a.places.as<int32_t>(),
                     .weights = a.weights.as<float>(),
                     .choices = a.weights.size(),
                     .F = a.a.shape[1]};
    const unsigned blocks = blocks_for(w.choices, kWarps);
    if (packable<T>(w.F, w.da, w.a))
      weigh_rows_kernel<T, kPackSize<T>><<<blocks, kThreads, 0, native(stream)>>>(w);
    else
      weigh_rows_kernel<T, 1><<<blocks, kThreads, 0, native(stream)>>>(w);
    check_launch(stream, "weigh_rows");
  });
}

void gate_rows_forward(Stream& stream, const GateRowsForward& a) {
  visit_float(a.y.dtype, [&]<class T>() {
    const int64_t C = a.y.shape[1];
    const GateForward<T> op{.y = a.y.as<T>(),
                            .x = a.x.as<T>(),
                            .addend = a.addend.empty() ? nullptr : a.addend.as<T>(),
                            .gate = a.gate.as<float>(),
                            .rows = {C, C}};
    launch_flat<kPackSize<T>>(stream, "gate_rows_forward", op, a.y.size(),
                              packable<T>(C, op.y, op.x, op.addend));
  });
}

void gate_rows_backward(Stream& stream, const GateRowsBackward& a) {
  visit_float(a.dx.dtype, [&]<class T>() {
    const GateBackward<T> g{.dx = a.dx.as<T>(),
                            .dgate = a.dgate.as<float>(),
                            .dy = a.dy.as<T>(),
                            .x = a.x.as<T>(),
                            .gate = a.gate.as<float>(),
                            .tokens = a.dx.shape[0],
                            .C = a.dx.shape[1]};
    const unsigned blocks = blocks_for(g.tokens, kWarps);
    if (packable<T>(g.C, g.dx, g.dy, g.x))
      gate_rows_backward_kernel<T, kPackSize<T>><<<blocks, kThreads, 0, native(stream)>>>(g);
    else
      gate_rows_backward_kernel<T, 1><<<blocks, kThreads, 0, native(stream)>>>(g);
    check_launch(stream, "gate_rows_backward");
  });
}

}  // namespace flatshard::cuda
