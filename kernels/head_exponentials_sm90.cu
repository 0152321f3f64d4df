// The product of the output head that ends with exponentials, and its loss and gradients
// (head_exponentials.h).

#include <limits>

#include "kernels/gemm_sm90.cuh"
#include "kernels/gemm_sm90.h"
#include "kernels/head_exponentials.h"

namespace flatshard::cuda {

static_assert(HeadExponentials::kTile == ProductTiles::kColumns);

constexpr float kLowest = std::numeric_limits<float>::lowest();

// Writes for each row of a tile the largest sum, the sum of exp(sum - largest), and these exponentials.
template <class T>
struct ExponentialEnd {
  static constexpr bool kHalves = false;
  static constexpr int kApart = 0;
  T* exps;  // null: not written
  float2* tiles;
  float* target_logits;
  const int32_t* targets;
  int64_t stride;
  int columns, valid;  // exps of columns from `valid` on are zero
  int tiles_of_row;

  // Takes the lane's columns of a row, the first of which is `first`; leaves their exponentials.
  __device__ void take_row(Sums<1, ProductTiles::kColumns>& sums, int own_row, int row, bool exists,
                           int first, int tile) const {
    constexpr int kPairs = ProductTiles::kColumns / 8;
    const int from = first + sums.column_of(0);
    if (first + ProductTiles::kColumns > valid)
      for_each_column<kPairs>([&](int n, int k) {
        if (from + 8 * n + k >= valid)
          sums.at[0][n][2 * own_row + k] = -std::numeric_limits<float>::infinity();
      });
    const int target = exists ? targets[row] : -1;
    if (target >= first && target < first + ProductTiles::kColumns)
      for_each_column<kPairs>([&](int n, int k) {
        if (from + 8 * n + k == target) target_logits[row] = sums.at[0][n][2 * own_row + k];
      });
    float largest = kLowest, sum = 0;
    for_each_column<kPairs>([&](int n, int k) { largest = fmaxf(largest, sums.at[0][n][2 * own_row + k]); });
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
    for_each_column<kPairs>([&](int n, int k) {
      float& value = sums.at[0][n][2 * own_row + k];
      value = __expf(value - largest);
      sum += value;
    });
    sum = warp_sum<4>(sum);
    if (exists && threadIdx.x % 4 == 0) tiles[int64_t{row} * tiles_of_row + tile] = {largest, sum};
  }
  __device__ void write(const Job&, int row, int column, Four v) const {
    v.store_to(exps + row * stride + column);
  }

 private:
  template <int kPairs, class Body>
  static __device__ void for_each_column(Body body) {
#pragma unroll
    for (int n = 0; n < kPairs; ++n)
#pragma unroll
      for (int k = 0; k < 2; ++k) body(n, k);
  }
};

template <class T, class Jobs>
__device__ void begin_end(const ProductArguments<Jobs, ExponentialEnd<T>>& a,
                          Sums<1, ProductTiles::kColumns>& sums, const Job& job, int row) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int i = job.first_row + row + sums.row_of(r);
    a.end.take_row(sums, r, i, i < job.end_row, a.first_column(job.column, 0), job.column);
  }
}

namespace {

constexpr int kThreads = 512;  // three such blocks fit on an SM, with 40 registers a thread

template <class T>
struct ExponentialRows {
  T* exps;  // null: only the loss
  float* loss;
  const float2* tiles;
  const float* target_logits;
  const int32_t* targets;
  const float* target_weights;
  int64_t columns, valid;
  int tiles_of_row;
};

// A block owns a row. Its factors, one for each tile, turn exponentials into gradients.
template <class T>
__global__ void __launch_bounds__(kThreads) head_exponentials_loss_kernel(ExponentialRows<T> r) {
  constexpr int kPack = kPackSize<T>;
  extern __shared__ float factors[];
  const int64_t row = blockIdx.x, target = r.targets[row];
  T* const exps = r.exps ? r.exps + row * r.columns : nullptr;
  require(target < r.valid);
  if (target < 0) {
    if (threadIdx.x == 0) r.loss[row] = 0.0f;
    if (exps)
      for (int64_t i = int64_t{threadIdx.x} * kPack; i < r.columns; i += kThreads * kPack)
        store<T, kPack>(exps + i, {});
    return;
  }
  const float2* const tiles = r.tiles + row * r.tiles_of_row;
  float largest = kLowest, sum = 0;
  for (int i = threadIdx.x; i < r.tiles_of_row; i += kThreads) largest = fmaxf(largest, tiles[i].x);
  largest = block_max<kThreads>(largest);
  for (int i = threadIdx.x; i < r.tiles_of_row; i += kThreads) {
    const float factor = __expf(tiles[i].x - largest);
    sum += tiles[i].y * factor;
    if (exps) factors[i] = factor;
  }
  sum = block_sum<kThreads>(sum);  // its barriers also order the factors
  const float weight = r.target_weights[row], target_logit = r.target_logits[row], scale = weight / sum;
  if (threadIdx.x == 0) r.loss[row] = weight * (logf(sum) + (largest - target_logit));
  if (!exps) return;
  const T at_target = from_float<T>(__fmul_rn(__expf(target_logit - largest), scale) - weight);
  for (int64_t i = int64_t{threadIdx.x} * kPack; i < r.columns; i += kThreads * kPack) {
    const float factor = factors[i / ProductTiles::kColumns] * scale;
    Pack<T, kPack> v = load<T, kPack>(exps + i);
    for (int k = 0; k < kPack; ++k)
      v.element[k] = i + k == target ? at_target : from_float<T>(to_float(v.element[k]) * factor);
    store<T, kPack>(exps + i, v);
  }
}

int64_t valid_of(const HeadExponentials& a) { return a.valid_vocab > 0 ? a.valid_vocab : a.w.shape[0]; }

template <class T>
void multiply(Stream& stream, const HeadExponentials& a) {
  const int64_t N = a.x.shape[0], C = a.x.shape[1], V = a.w.shape[0],
                columns = HeadExponentials::columns_of(V);
  const ExponentialEnd<T> end{.exps = a.exps.empty() ? nullptr : a.exps.as<T>(),
                              .tiles = reinterpret_cast<float2*>(a.tiles.as<float>()),
                              .target_logits = a.target_logits.as<float>(),
                              .targets = a.targets.as<int32_t>(),
                              .stride = columns,
                              .columns = a.exps.empty() ? 0 : static_cast<int>(columns),
                              .valid = static_cast<int>(valid_of(a)),
                              .tiles_of_row = static_cast<int>(HeadExponentials::tiles_of(V))};
  launch_product<T>(stream, Operands<false, true>{a.x, a.w, C, C},
                    DenseJobs{.grid = {tiles_of(N, ProductTiles::kRows), end.tiles_of_row},
                              .rows = static_cast<int>(N),
                              .steps = tiles_of(C, ProductTiles::kDepth)},
                    end);
}

template <class T>
void loss(Stream& stream, const HeadExponentialsLoss& a) {
  const ExponentialRows<T> rows{
      .exps = a.gradient ? a.of.exps.as<T>() : nullptr,
      .loss = a.loss.as<float>(),
      .tiles = reinterpret_cast<const float2*>(a.of.tiles.as<float>()),
      .target_logits = a.of.target_logits.as<float>(),
      .targets = a.of.targets.as<int32_t>(),
      .target_weights = a.target_weights.as<float>(),
      .columns = HeadExponentials::columns_of(a.of.w.shape[0]),
      .valid = valid_of(a.of),
      .tiles_of_row = static_cast<int>(HeadExponentials::tiles_of(a.of.w.shape[0]))};
  const int bytes = a.gradient ? rows.tiles_of_row * static_cast<int>(sizeof(float)) : 0;
  allow_shared_bytes(head_exponentials_loss_kernel<T>, bytes);
  head_exponentials_loss_kernel<T>
      <<<static_cast<unsigned>(a.of.x.shape[0]), kThreads, static_cast<size_t>(bytes), native(stream)>>>(
          rows);
  check_launch(stream, "head_exponentials_loss");
}

}  // namespace

void head_exponentials_sm90(Stream& stream, const HeadExponentials& a) {
  a.x.dtype == DType::bf16 ? multiply<bf16>(stream, a) : multiply<f16>(stream, a);
}

void head_exponentials_loss_sm90(Stream& stream, const HeadExponentialsLoss& a) {
  a.of.x.dtype == DType::bf16 ? loss<bf16>(stream, a) : loss<f16>(stream, a);
}

}  // namespace flatshard::cuda
