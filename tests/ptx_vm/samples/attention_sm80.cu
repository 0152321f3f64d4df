#include "kernels/cuda_util.cuh"
#include "tests/ptx_vm/samples/attention_sm80.h"
#include "tests/ptx_vm/samples/tensor_core.cuh"

namespace flatshard::ptx_vm {
namespace {

using namespace flatshard::cuda;

// A block computes kQueries rows of one head, 16 in each warp. It goes through the keys kKeys at a time;
// while it computes with one stage of keys and values, the next are on their way.
constexpr int kQueries = 64, kKeys = 64, kRows = 16, kThreads = kQueries / kRows * kWarp, kStages = 2;
constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
constexpr float kInfinity = INFINITY;

template <class T>
struct HeadsView {  // of a (T, H, D) tensor
  T* data;
  int64_t stride;
  int head_size;
  __device__ T* at(int64_t row, int head) const { return data + row * stride + head * head_size; }
};

struct Arguments {
  HeadsView<bf16> o;
  float* lse;
  HeadsView<const bf16> q, k, v;
  const int32_t *cu_seqlens, *cu_seqlens_kv;
  int documents, rows;
  int queries_per_key_head;
  bool causal;
  int window;
  float scale;  // of scores in powers of two
};

// The rows of one block, within their document.
struct Work {
  int first_query, queries;  // rows of the document in the tensor, and how many it has
  int first_key, keys;
  int begin;  // of the block's rows

  __device__ int count() const { return min(kQueries, queries - begin); }
  __device__ int position(int row) const { return begin + row + keys - queries; }
};

// Blocks stand for the tiles of all documents in a row; those beyond the last have nothing to do.
__device__ bool find_work(const Arguments& a, int block, Work* work) {
  for (int d = 0; d < a.documents; ++d) {
    const int queries = a.cu_seqlens[d + 1] - a.cu_seqlens[d], tiles = (queries + kQueries - 1) / kQueries;
    if (block < tiles) {
      const int keys = a.cu_seqlens_kv[d + 1] - a.cu_seqlens_kv[d];
      *work = {a.cu_seqlens[d], queries, a.cu_seqlens_kv[d], keys, block * kQueries};
      return true;
    }
    block -= tiles;
  }
  return false;
}

// Which keys the queries of a block see.
struct Visible {
  int keys, window;
  bool causal;
  int first_position, last_position;  // of its queries

  __device__ Visible(const Arguments& a, const Work& w)
      : keys(w.keys),
        window(a.causal ? a.window : 0),
        causal(a.causal),
        first_position(w.position(0)),
        last_position(w.position(w.count() - 1)) {}

  __device__ int first_tile() const { return window > 0 ? max(0, first_position - window + 1) / kKeys : 0; }
  __device__ int end_tile() const {
    const int seen = causal ? max(0, min(keys, last_position + 1)) : keys;
    return (seen + kKeys - 1) / kKeys;
  }
  // Is any key of this tile hidden from any query?
  __device__ bool hides(int tile) const {
    const int first = tile * kKeys, last = first + kKeys - 1;
    return last >= keys || (causal && last > first_position) ||
           (window > 0 && first <= last_position - window);
  }
  __device__ bool sees(int position, int key) const {
    return key < keys && (!causal || key <= position) && (window == 0 || key > position - window);
  }
};

// Begins to copy 64 rows of a head, of which `count` exist; the others become zero.
template <int D>
__device__ void copy_tile(const SwizzledTile<D>& to, const HeadsView<const bf16>& from, int64_t first_row,
                          int head, int count) {
  constexpr int kChunks = SwizzledTile<D>::kChunks;
  static_assert(kQueries == kKeys && kKeys * kChunks % kThreads == 0);
  for (int i = threadIdx.x; i < kKeys * kChunks; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks;
    const bool exists = row < count;
    copy_async(to.at(row, chunk), from.at(first_row + (exists ? row : 0), head) + chunk * kChunk, exists);
  }
}

// What a warp knows of its 16 rows: each lane of rows l / 4 and l / 4 + 8.
template <int D>
struct Rows {
  float o[D / 8][4] = {};
  float maximum[2] = {-kInfinity, -kInfinity};
  float sum[2] = {};  // of this lane's columns alone

  // Scores become p = 2^(scale score - maximum); what was summed so far shrinks to the new maximum.
  __device__ void softmax(float (&scores)[kKeys / 8][4], float scale) {
    for (int half = 0; half < 2; ++half) {
      float now = -kInfinity;
      for (auto& score : scores) now = fmaxf(now, fmaxf(score[2 * half], score[2 * half + 1]));
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 1));
      now = fmaxf(now, __shfl_xor_sync(0xffffffffu, now, 2));
      now = fmaxf(maximum[half], now * scale);
      const float shift = now == -kInfinity ? 0.0f : now, kept = exp2f(maximum[half] - shift);
      maximum[half] = now;
      sum[half] *= kept;
      for (auto& score : scores)
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          score[i] = exp2f(fmaf(score[i], scale, -shift));
          sum[half] += score[i];
        }
      for (auto& part : o) part[2 * half] *= kept, part[2 * half + 1] *= kept;
    }
  }
};

// scores (16, kKeys) = q k^T. A lane's row for ldmatrix: keys n ... n + 15, elements d ... d + 15.
template <int D>
__device__ void multiply_keys(float (&scores)[kKeys / 8][4], const uint32_t (&q)[D / 16][4],
                              const SwizzledTile<D>& k, int lane) {
#pragma unroll
  for (int d = 0; d < D / 16; ++d)
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      uint32_t piece[4];
      load_pieces(piece, k.at(16 * n + lane / 16 * 8 + lane % 8, 2 * d + lane / 8 % 2));
      multiply_add(scores[2 * n], q[d], piece[0], piece[1]);
      multiply_add(scores[2 * n + 1], q[d], piece[2], piece[3]);
    }
}

// o (16, D) += p v. Sums of one product are the left operand of the next, so p never leaves its lanes.
template <int D>
__device__ void multiply_values(float (&o)[D / 8][4], const float (&p)[kKeys / 8][4],
                                const SwizzledTile<D>& v, int lane) {
#pragma unroll
  for (int n = 0; n < kKeys / 16; ++n) {
    const float(&left)[4] = p[2 * n], (&right)[4] = p[2 * n + 1];
    const uint32_t a[4] = {pack(left[0], left[1]), pack(left[2], left[3]), pack(right[0], right[1]),
                           pack(right[2], right[3])};
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      uint32_t piece[4];
      load_pieces_transposed(piece, v.at(16 * n + lane % 16, 2 * d + lane / 16));
      multiply_add(o[2 * d], a, piece[0], piece[1]);
      multiply_add(o[2 * d + 1], a, piece[2], piece[3]);
    }
  }
}

__device__ void hide(float (&scores)[kKeys / 8][4], const Visible& visible, int position, int first_key) {
#pragma unroll
  for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (!visible.sees(position + i / 2 * 8, first_key + 8 * n + i % 2)) scores[n][i] = -kInfinity;
}

// The sums divided, through the warp's own rows of shared memory, so that they leave 16 bytes at a time.
template <int D>
__device__ void write_rows(const Arguments& a, const Work& work, Rows<D>& rows, const SwizzledTile<D>& tile,
                           int head) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, first = warp * kRows;
  __syncwarp();  // all lanes have read their queries from there
  for (int half = 0; half < 2; ++half) {
    float sum = rows.sum[half];
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    const bool sees_nothing = sum == 0.0f;
    const float inverse = sees_nothing ? 0.0f : 1.0f / sum;
    const int row = first + half * 8 + lane / 4;
    for (int n = 0; n < D / 8; ++n)
      store_shared(tile.at(row, n) + lane % 4 * 4,
                   pack(rows.o[n][2 * half] * inverse, rows.o[n][2 * half + 1] * inverse));
    if (lane % 4 == 0 && row < work.count())
      a.lse[static_cast<int64_t>(head) * a.rows + work.first_query + work.begin + row] =
          sees_nothing ? -kInfinity : (rows.maximum[half] + log2f(sum)) * kLn2;
  }
  __syncwarp();
  constexpr int kChunks = SwizzledTile<D>::kChunks;
  for (int i = lane; i < kRows * kChunks; i += kWarp) {
    const int row = first + i / kChunks, chunk = i % kChunks;
    if (row >= work.count()) break;
    bf16* to = a.o.at(work.first_query + work.begin + row, head) + chunk * kChunk;
    *reinterpret_cast<uint4*>(to) = load_shared(tile.at(row, chunk));
  }
}

template <int D>
__global__ void __launch_bounds__(kThreads) forward_kernel(Arguments a) {
  extern __shared__ uint4 shared[];
  Work work;
  if (!find_work(a, blockIdx.x, &work)) return;
  const int head = blockIdx.y, key_head = head / a.queries_per_key_head;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const auto tile = [&](int i) {
    return SwizzledTile<D>{shared_address(shared) + i * SwizzledTile<D>::bytes(kKeys)};
  };
  const auto keys_of = [&](int t) { return tile(1 + t % kStages); };
  const auto values_of = [&](int t) { return tile(1 + kStages + t % kStages); };
  const auto copy_stage = [&](int t) {
    const int first = work.first_key + t * kKeys, count = work.keys - t * kKeys;
    copy_tile<D>(keys_of(t), a.k, first, key_head, count);
    copy_tile<D>(values_of(t), a.v, first, key_head, count);
  };
  const Visible visible(a, work);
  const int first = visible.first_tile(), end = visible.end_tile();
  Rows<D> rows;
  uint32_t q[D / 16][4];
  if (first < end) {
    copy_tile<D>(tile(0), a.q, work.first_query + work.begin, head, work.count());
    copy_stage(first);
    commit_copies();
  }
  for (int t = first; t < end; ++t) {
    wait_for_copies<0>();
    __syncthreads();  // everybody's copies have arrived, and nobody reads the other stage any more
    if (t + 1 < end) copy_stage(t + 1);
    commit_copies();
    if (t == first) {
#pragma unroll
      for (int d = 0; d < D / 16; ++d)
        load_pieces(q[d], tile(0).at(warp * kRows + lane % 16, 2 * d + lane / 16));
    }
    float scores[kKeys / 8][4] = {};
    multiply_keys<D>(scores, q, keys_of(t), lane);
    if (visible.hides(t))
      hide(scores, visible, work.position(warp * kRows + lane / 4), t * kKeys + lane % 4 * 2);
    rows.softmax(scores, a.scale);
    multiply_values<D>(rows.o, scores, values_of(t), lane);
  }
  write_rows<D>(a, work, rows, tile(0), head);
}

template <class T>
HeadsView<T> view(const Heads& heads) {
  check(reinterpret_cast<uintptr_t>(heads.of.data) % 16 == 0,
        "attention: a tensor does not begin at a multiple of 16 bytes");
  return {heads.at<bf16>(0, 0), heads.stride(), static_cast<int>(heads.head_size())};
}

template <int D>
void launch(Stream& stream, const Arguments& a, int heads) {
  constexpr int kBytes = (1 + 2 * kStages) * SwizzledTile<D>::bytes(kKeys);
  cuda_check(cudaFuncSetAttribute(forward_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
             "cudaFuncSetAttribute");
  const dim3 grid(a.rows / kQueries + a.documents, heads);
  forward_kernel<D><<<grid, kThreads, kBytes, native(stream)>>>(a);
  check_launch("attention_sm80_forward");
}

}  // namespace

void attention_sm80_forward(Stream& stream, const AttentionForward& a) {
  if (stream.planning()) return;
  const AttentionMask& mask = a.mask;
  const Tensor& key_boundaries = mask.cu_seqlens_kv.empty() ? mask.cu_seqlens : mask.cu_seqlens_kv;
  const Arguments arguments{.o = view<bf16>(a.o),
                            .lse = a.lse.as<float>(),
                            .q = view<const bf16>(a.q),
                            .k = view<const bf16>(a.k),
                            .v = view<const bf16>(a.v),
                            .cu_seqlens = mask.cu_seqlens.as<int32_t>(),
                            .cu_seqlens_kv = key_boundaries.as<int32_t>(),
                            .documents = static_cast<int>(mask.cu_seqlens.size() - 1),
                            .rows = static_cast<int>(a.q.rows()),
                            .queries_per_key_head = static_cast<int>(a.q.count / a.k.count),
                            .causal = mask.causal,
                            .window = static_cast<int>(mask.window),
                            .scale = a.scale * kLog2e};
  const auto heads = static_cast<int>(a.q.count);
  if (a.q.head_size() == 64) return launch<64>(stream, arguments, heads);
  if (a.q.head_size() == 128) return launch<128>(stream, arguments, heads);
  fail(str("attention: head size ", a.q.head_size(), ", must be 64 or 128"));
}

}  // namespace flatshard::ptx_vm
