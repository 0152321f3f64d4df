#pragma once
// Shared by the forward and backward pass of attention on the GPU: the rows of a thread block, the mask,
// copies of tiles between global and shared memory, and the layout of a warp's sums.

#include <bit>

#include "kernels/attention.h"
#include "kernels/attention_order.h"
#include "kernels/sums.cuh"
#include "kernels/tensor_core.cuh"

namespace flatshard::cuda {

inline constexpr int kPieceRows = 16;  // rows of one tensor-core operand
inline constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// 2^x within 2 units in the last place; 0 below 2^-126.
__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// tanh(x) in one instruction, within 2^-11 of its size.
__device__ inline float coarse_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// The soft cap of scores, in base 2: a product of queries and keys of T becomes `outer` tanh(`inner`
// product).
//
// If T has 16 bits, it uses coarse_tanh, so a cap takes one more special function per score, not two. It errs
// by up to 2^-11 of a score, as much as the rounding of queries to f16, and an eighth of their rounding to
// bf16. Both passes use the same function.
template <class T>
struct ScoreCap {
  float inner, outer, inverse_outer;  // 0: none

  __device__ bool caps() const { return outer > 0.0f; }
  __device__ float score(float product) const {
    const float x = inner * product;
    return outer * (sizeof(T) == 2 ? coarse_tanh(x) : tanh_of(x));
  }
  // The derivative by `inner` times the product, divided by `outer`; 0 if the score is masked.
  __device__ float slope(float score) const {
    const float share = fmaxf(score * inverse_outer, -1.0f);
    return fmaf(-share, share, 1.0f);
  }
};

// --- rows

// Rows [begin, end), relative to the document's first row; or a range of tiles.
struct Span {
  int begin, end;

  __device__ int size() const { return end > begin ? end - begin : 0; }
  __device__ bool holds(int i) const { return i >= begin && i < end; }
  __device__ bool covers(const Span& other) const { return begin <= other.begin && other.end <= end; }
  // The tiles of `size` rows that intersect the span.
  __device__ Span tiles(int size) const {
    return end > begin ? Span{begin / size, (end + size - 1) / size} : Span{0, 0};
  }
};

// Determines which keys of a document its queries attend to.
struct Visible {
  int queries, keys;
  bool causal;
  int window;  // larger than any distance if there is no window

  __device__ int shift() const { return keys - queries; }  // query i has the position i + shift
  __device__ bool attends(int query, int key) const {
    const int distance = query + shift() - key;
    return key < keys && (!causal || (distance >= 0 && distance < window));
  }
  // The rows of a span that exist.
  __device__ Span existing(Span rows) const { return {rows.begin, min(queries, rows.end)}; }
  // A span that contains all keys to which some query of `rows` attends. queries_of() is the reverse: all
  // queries that attend to some key of a span.
  __device__ Span keys_of(Span rows) const {
    if (rows.size() == 0) return {0, 0};
    if (!causal) return {0, keys};
    return {max(0, rows.begin + shift() - window + 1), min(keys, rows.end + shift())};
  }
  __device__ Span queries_of(Span rows) const {
    if (rows.size() == 0) return {0, 0};
    if (!causal) return {0, queries};
    return {max(0, rows.begin - shift()), min(queries, rows.end - 1 - shift() + window)};
  }
  __device__ Span keys_of(int query) const { return keys_of(Span{query, query + 1}); }
  __device__ Span queries_of(int key) const { return queries_of(Span{key, key + 1}); }
  // Returns whether no pair of these queries and keys is masked.
  __device__ bool unmasked(Span rows, Span of_keys) const {
    if (of_keys.end > keys) return false;
    return !causal ||
           (of_keys.end - 1 <= rows.begin + shift() && rows.end - 1 + shift() - of_keys.begin < window);
  }
};

struct Mask {
  Documents queries, keys;
  bool causal;
  int window;
  int group;  // query heads per key head

  __device__ Visible visible(int document) const {
    return {queries.length(document), keys.length(document), causal, window};
  }
};

// A warp that searches a BlockOrder. Its members are for the host as well, and so use no intrinsics, because
// nvcc lets constexpr functions call no function that is for the device alone. No host code calls them.
struct WarpLanes {
  static constexpr int kCount = kWarp;
  static __host__ __device__ int index() {
    int lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
  }
  static __host__ __device__ int sum(int value) {
    int all;
    asm volatile("redux.sync.add.s32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
  }
  static __host__ __device__ int most(int value) {
    int all;
    asm volatile("redux.sync.max.s32 %0, %1, 0xffffffff;" : "=r"(all) : "r"(value));
    return all;
  }
  static __host__ __device__ int sum_before(int value) {
    int sum = value;
    for (int distance = 1; distance < kWarp; distance *= 2) {
      int below;
      asm volatile("shfl.sync.up.b32 %0, %1, %2, 0, 0xffffffff;" : "=r"(below) : "r"(sum), "r"(distance));
      if (index() >= distance) sum += below;
    }
    return sum - value;
  }
};

// Traps if the boundaries do not ascend from 0 to the number of rows. Called by whole warps.
__device__ inline void require_ascending(const Documents& documents) {
  int errors = documents.first_row(0) != 0 || documents.first_row(documents.count) != documents.rows;
  for (int first = 0; first < documents.count; first += kWarp) {
    const int d = first + WarpLanes::index();
    errors += d < documents.count && documents.length(d) < 0;
  }
  require(WarpLanes::most(errors) == 0);
}

// The same, divided among the blocks of a grid: each checks the document with the number of its slot, and
// that the document it visits lies within the tensor. A grid has at least as many slots as documents.
__device__ inline void require_ascending(const Documents& documents, int slot, int visited) {
  require(documents.first_row(0) == 0 && documents.first_row(documents.count) == documents.rows);
  require(slot >= documents.count || documents.length(slot) >= 0);
  const int first = documents.first_row(visited), last = documents.first_row(visited + 1);
  require(0 <= first && first <= last && last <= documents.rows);
}

// The slot of a thread block in a grid of (heads, slots), where slots beyond the limit of y continue in z.
__device__ inline int slot_in_grid() { return static_cast<int>(blockIdx.z * gridDim.y + blockIdx.y); }

// The rows that a thread block owns: a block of a document's queries or keys. Every warp searches for its
// block.
struct OwnRows {
  Visible visible;
  Span rows;  // empty if the slot is empty
  int document;
  int first_row;  // first row of `rows` in the tensors

  __device__ OwnRows(const Mask& mask, bool owns_keys, int size, int slot = slot_in_grid()) {
    const BlockOrder order{.own = owns_keys ? mask.keys : mask.queries,
                           .other = owns_keys ? mask.queries : mask.keys,
                           .size = size,
                           .causal = mask.causal,
                           .owns_keys = owns_keys};
    if (order.is_sorted()) require_ascending(mask.queries), require_ascending(mask.keys);
    const BlockOrder::Block block = order.block_of<WarpLanes>(slot);
    const int begin = block.index * size;
    document = max(block.document, 0);
    if (!order.is_sorted())
      require_ascending(mask.queries, slot, document), require_ascending(mask.keys, slot, document);
    visible = mask.visible(document);
    rows = {begin, block.empty() ? begin : min(order.own.length(document), begin + size)};
    first_row = order.own.first_row(document) + begin;
  }
};

// The work of a thread block that owns queries of a head, and the part of its rows that belongs to the warp.
template <class Tiles>
struct QueryBlock : OwnRows {
  int key_head, head;
  int warp_row;  // first row of the warp in the tile

  __device__ explicit QueryBlock(const Mask& mask)
      : OwnRows(mask, false, Tiles::kRows),
        key_head(blockIdx.x / mask.group),
        head(blockIdx.x),
        warp_row(threadIdx.x / kWarp * Tiles::kWarpRows) {}
  // The rows of the warp, of which own_count() exist. The first one is row own_row() of the tensors.
  __device__ Span own() const { return {rows.begin + warp_row, rows.begin + warp_row + Tiles::kWarpRows}; }
  __device__ int own_count() const { return visible.queries - rows.begin - warp_row; }
  __device__ int own_row() const { return first_row + warp_row; }
  // The tiles of keys that the block attends to, and the tiles that the warp attends to.
  __device__ Span seen() const { return visible.keys_of(rows).tiles(Tiles::kKeys); }
  __device__ Span seen_by_warp() const {
    return visible.keys_of(visible.existing(own())).tiles(Tiles::kKeys);
  }
};

// --- tiles of rows

template <class T>
struct HeadsView {  // a view of a (T, H, D) tensor
  T* data;
  int64_t stride;
  int head_size;
  bool chunked;  // rows are aligned to 16 bytes and a multiple of 16 bytes long

  __device__ T* at(int64_t row, int head) const { return data + row * stride + head * head_size; }
};

template <class T>
HeadsView<T> view(const Heads& heads) {
  T* data = heads.at<T>(0, 0);
  const int64_t D = heads.head_size();
  return {data, heads.stride(), static_cast<int>(D), packable<T>(D, data)};
}

// Elements [column, column + kPackSize<T>) of a row; zero past its end.
template <class T>
__device__ Pack<T, kPackSize<T>> load_chunk(const HeadsView<T>& from, int64_t row, int head, int column) {
  if (from.chunked && column < from.head_size) return load<T, kPackSize<T>>(from.at(row, head) + column);
  Pack<T, kPackSize<T>> chunk{};
  for (int i = 0; i < kPackSize<T>; ++i)
    if (column + i < from.head_size) chunk.element[i] = from.at(row, head)[column + i];
  return chunk;
}
template <class T>
__device__ void store_chunk(const HeadsView<T>& to, int64_t row, int head, int column,
                            const Pack<T, kPackSize<T>>& chunk) {
  if (to.chunked) return store<T, kPackSize<T>>(to.at(row, head) + column, chunk);
  for (int i = 0; i < kPackSize<T>; ++i)
    if (column + i < to.head_size) to.at(row, head)[column + i] = chunk.element[i];
}

// Copies the chunks of a tile from kFirst on, for a chunked view. The columns are split into parts whose
// number of chunks is a power of two. A thread copies one chunk of every kStep-th row of a part, so its
// sources, and its places in the tile, are constant distances apart.
template <int kRows, int kThreads, int kFirst, class T, int D>
__device__ void copy_chunks(const SwizzledTile<T, D>& to, const HeadsView<T>& from, int64_t first_row,
                            int head, int count) {
  using Tile = SwizzledTile<T, D>;
  constexpr unsigned kPart = std::bit_floor(static_cast<unsigned>(Tile::kChunks - kFirst));
  constexpr int kStep = kThreads / kPart;
  static_assert(kThreads % kPart == 0 && (kRows % kStep == 0 || kRows < kStep));
  const int row = threadIdx.x / kPart, chunk = kFirst + threadIdx.x % kPart;  // unsigned, so these are shifts
  const int column = chunk * Tile::kChunk;
  const int remaining = column < from.head_size ? count - row : 0;  // number of existing rows from `row` on
  const T* source = from.at(first_row + row, head) + column;
  const uint32_t place = to.at(row, chunk);
  if (kRows >= kStep || row < kRows)
#pragma unroll
    for (int r = 0; r < kRows; r += kStep, source += kStep * from.stride)
      copy_async(Tile::below(place, r), source, r < remaining);
  if constexpr (kFirst + kPart < Tile::kChunks)
    copy_chunks<kRows, kThreads, kFirst + kPart>(to, from, first_row, head, count);
}

// Copies a tile through registers, for a view that is not chunked.
template <int kRows, int kThreads, class T, int D>
__device__ void copy_elements(const SwizzledTile<T, D>& to, const HeadsView<T>& from, int64_t first_row,
                              int head, int count) {
  using Tile = SwizzledTile<T, D>;
#pragma unroll 1
  for (int i = threadIdx.x; i < kRows * Tile::kChunks; i += kThreads) {
    const int row = i / Tile::kChunks, chunk = i % Tile::kChunks, column = chunk * Tile::kChunk;
    Pack<T, kPackSize<T>> elements{};
    if (row < count && column < from.head_size) elements = load_chunk(from, first_row + row, head, column);
    store_shared(to.at(row, chunk), reinterpret_cast<const uint4&>(elements));
  }
}

// Starts an asynchronous copy of kRows rows of a head, called by all kThreads threads. Rows from `count` on
// and columns past the head size become zero.
template <int kRows, int kThreads, class T, int D>
__device__ void copy_tile(const SwizzledTile<T, D>& to, const HeadsView<T>& from, int64_t first_row, int head,
                          int count) {
  if (from.chunked)
    copy_chunks<kRows, kThreads, 0>(to, from, first_row, head, count);
  else
    copy_elements<kRows, kThreads>(to, from, first_row, head, count);
}

// --- sums of products

// Writes the first `count` rows of a warp to `to`, starting at (row, head) and `first_column`. The rows pass
// through the warp's own rows of a shared tile, from first_row on, so that global stores are 16 bytes wide.
template <class T, int D, int kPieces, int kColumns>
__device__ void write_rows(const Sums<kPieces, kColumns>& sums, const SwizzledTile<T, D>& tile, int first_row,
                           const HeadsView<T>& to, int64_t row, int head, int first_column, int count) {
  using Tile = SwizzledTile<T, D>;
  const int lane = threadIdx.x % kWarp;
  __syncwarp();  // all lanes have finished reading the tile
  const int column = lane % 4 * 2;
  const uint32_t first = tile.at(first_row + lane / 4, (first_column + column) / Tile::kChunk) +
                         column % Tile::kChunk * static_cast<int>(sizeof(T));
#pragma unroll
  for (int part = 0; part < 2 * kPieces; ++part)
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      const float* sum = &sums.at[part / 2][n][part % 2 * 2];
      const uint32_t place = Tile::below(Tile::further(first, 8 * n / Tile::kChunk), 8 * part);
      if constexpr (sizeof(T) == 2)
        store_shared(place, pack<T>(sum[0], sum[1]));
      else
        store_shared(place, make_float2(sum[0], sum[1]));
    }
  __syncwarp();
  constexpr int kChunks = kColumns / Tile::kChunk;
  for (int i = lane; i < kPieces * kPieceRows * kChunks; i += kWarp) {
    const int r = i / kChunks, column = first_column + i % kChunks * Tile::kChunk;
    if (r >= count) break;
    if (column >= to.head_size) continue;
    const uint4 bits = load_shared(tile.at(first_row + r, column / Tile::kChunk));
    store_chunk(to, row + r, head, column, reinterpret_cast<const Pack<T, kPackSize<T>>&>(bits));
  }
}

}  // namespace flatshard::cuda
