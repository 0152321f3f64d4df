#pragma once
// What the passes of attention share on the GPU: which rows a block of threads works on, which pairs of a
// query and a key are seen, how tiles of rows come from global memory and go back, and how a warp holds sums.

#include "kernels/attention.h"
#include "kernels/tensor_core.cuh"

namespace flatshard::cuda {

inline constexpr int kPieceRows = 16;  // of what a warp multiplies at a time
inline constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;

// 2^x within two units in the last place; what is below 2^-126 is zero.
__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// --- rows

// Rows [begin, end) of a document, counted from its first; or tiles of so many rows.
struct Span {
  int begin, end;

  __device__ int size() const { return end > begin ? end - begin : 0; }
  __device__ bool holds(int i) const { return i >= begin && i < end; }
  // The tiles of `size` rows that hold some of it.
  __device__ Span tiles(int size) const {
    return end > begin ? Span{begin / size, (end + size - 1) / size} : Span{0, 0};
  }
};

struct Documents {
  const int32_t* boundaries;
  int count, rows;

  // Blocks of `size` rows from the start of every document have numbers in [0, slots(size)); a few numbers
  // stand for an empty block. Document d's begin at boundaries[d] / size + d.
  int slots(int size) const { return rows / size + count; }
  __device__ int first_row(int document) const { return boundaries[document]; }
  __device__ int length(int document) const { return boundaries[document + 1] - boundaries[document]; }
  __device__ int document_of(int slot, int size) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_row(middle) / size + middle <= slot ? low : high) = middle;
    }
    return low;
  }
  __device__ Span block(int document, int slot, int size) const {
    const int begin = (slot - first_row(document) / size - document) * size;
    return {begin, min(length(document), begin + size)};
  }
  // Stops the kernel where boundaries lead out of the tensor.
  __device__ void require_document(int document) const {
    require(boundaries[0] == 0 && boundaries[count] == rows && first_row(document) >= 0 &&
            length(document) >= 0 && boundaries[document + 1] <= rows);
  }
};

// Which keys of a document its queries see.
struct Visible {
  int queries, keys;
  bool causal;
  int window;  // as large as any distance where there is none

  __device__ int shift() const { return keys - queries; }  // query i stands at position i + shift
  __device__ bool sees(int query, int key) const {
    const int distance = query + shift() - key;
    return key < keys && (!causal || (distance >= 0 && distance < window));
  }
  // Those of these queries that there are.
  __device__ Span existing(Span rows) const { return {rows.begin, min(queries, rows.end)}; }
  // All keys that some of these queries see lie in there, and the other way round.
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
  // Whether all of these queries see all of these keys.
  __device__ bool whole(Span rows, Span of_keys) const {
    if (of_keys.end > keys) return false;
    return !causal ||
           (of_keys.end - 1 <= rows.begin + shift() && rows.end - 1 + shift() - of_keys.begin < window);
  }
};

struct Mask {
  Documents queries, keys;
  bool causal;
  int window;

  __device__ Visible visible(int document) const {
    return {queries.length(document), keys.length(document), causal, window};
  }
};

// What a block of threads that owns queries works on: the rows of one tile of a document, of one head, and
// which of them are the warp's. The grid is (tiles, heads of a group, heads of keys).
template <class Tiles>
struct QueryBlock {
  Visible visible;
  Span rows;  // empty where there is nothing to do
  int document, key_head, head;
  int first_row;  // of these, in the tensors
  int warp_row;   // the first of the warp's rows, in the tile

  __device__ explicit QueryBlock(const Mask& mask) {
    const Documents &queries = mask.queries, &keys = mask.keys;
    const int slot = gridDim.x - 1 - blockIdx.x;  // causal: those with the most keys first
    document = queries.document_of(slot, Tiles::kRows);
    queries.require_document(document), keys.require_document(document);
    visible = mask.visible(document);
    rows = queries.block(document, slot, Tiles::kRows);
    key_head = blockIdx.z, head = key_head * gridDim.y + blockIdx.y;
    first_row = queries.first_row(document) + rows.begin;
    warp_row = threadIdx.x / kWarp * Tiles::kWarpRows;
  }
  // The warp's rows, of which own_count() exist; the first is own_row() of the tensors.
  __device__ Span own() const { return {rows.begin + warp_row, rows.begin + warp_row + Tiles::kWarpRows}; }
  __device__ int own_count() const { return visible.queries - rows.begin - warp_row; }
  __device__ int own_row() const { return first_row + warp_row; }
  // Tiles of keys that some of the rows see, and some of the warp's.
  __device__ Span seen() const { return visible.keys_of(rows).tiles(Tiles::kKeys); }
  __device__ Span seen_by_warp() const {
    return visible.keys_of(visible.existing(own())).tiles(Tiles::kKeys);
  }
};

// --- tiles of rows

template <class T>
struct HeadsView {  // of a (T, H, D) tensor
  T* data;
  int64_t stride;
  int head_size;
  bool chunked;  // every row is whole chunks of 16 bytes, and begins with one

  __device__ T* at(int64_t row, int head) const { return data + row * stride + head * head_size; }
};

template <class T>
HeadsView<T> view(const Heads& heads) {
  T* data = heads.at<T>(0, 0);
  const int64_t D = heads.head_size();
  return {data, heads.stride(), static_cast<int>(D), packable<T>(D, data)};
}

// Elements [column, column + kChunk) of a row; zero where there are none.
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

// Begins to copy kRows rows of a head, of which `count` exist; the others become zero, and so do columns
// beyond the head's. All kThreads threads take part.
template <int kRows, int kThreads, class T, int D>
__device__ void copy_tile(const SwizzledTile<T, D>& to, const HeadsView<T>& from, int64_t first_row, int head,
                          int count) {
  using Tile = SwizzledTile<T, D>;
#pragma unroll 1
  for (int i = threadIdx.x; i < kRows * Tile::kChunks; i += kThreads) {
    const int row = i / Tile::kChunks, chunk = i % Tile::kChunks, column = chunk * Tile::kChunk;
    const bool exists = row < count && column < from.head_size;
    if (from.chunked) {
      copy_async(to.at(row, chunk), exists ? from.at(first_row + row, head) + column : from.data, exists);
    } else {
      Pack<T, kPackSize<T>> elements{};
      if (exists) elements = load_chunk(from, first_row + row, head, column);
      store_shared(to.at(row, chunk), reinterpret_cast<const uint4&>(elements));
    }
  }
}

// --- sums of products

// A warp's sums of (16 kPieces, kColumns). Of each piece a lane holds the rows l / 4 and l / 4 + 8, and of
// each 8 columns 2 (l % 4) and the next.
template <int kPieces, int kColumns>
struct Sums {
  static constexpr int kRowsOfLane = 2 * kPieces, kColumnsOfLane = kColumns / 4;
  float at[kPieces][kColumns / 8][4] = {};  // the four: two columns of the first row, two of the second

  struct Place {
    int own_row, own_column;  // of those that the lane holds
    int row, column;
  };
  __device__ float& operator[](const Place& p) {
    return at[p.own_row / 2][p.own_column / 2][p.own_row % 2 * 2 + p.own_column % 2];
  }
  // body(place) for all that this lane holds.
  template <class Body>
  static __device__ void for_each(Body body) {
#pragma unroll
    for (int r = 0; r < kRowsOfLane; ++r)
#pragma unroll
      for (int c = 0; c < kColumnsOfLane; ++c) body(Place{r, c, row_of(r), column_of(c)});
  }
  static __device__ int row_of(int own_row) { return own_row * 8 + threadIdx.x % kWarp / 4; }
  static __device__ int column_of(int own_column) {
    return own_column / 2 * 8 + threadIdx.x % 4 * 2 + own_column % 2;
  }
  __device__ void scale(float factor) {
    for_each([&](const Place& p) { (*this)[p] *= factor; });
  }
};

// Writes the first `count` of a warp's rows to `to` from (row, head) and `first_column` on, through the rows
// from first_row on of a tile that the warp has for itself, so that they leave 16 bytes at a time.
template <class T, int D, int kPieces, int kColumns>
__device__ void write_rows(const Sums<kPieces, kColumns>& sums, const SwizzledTile<T, D>& tile, int first_row,
                           const HeadsView<T>& to, int64_t row, int head, int first_column, int count) {
  using Tile = SwizzledTile<T, D>;
  const int lane = threadIdx.x % kWarp;
  __syncwarp();  // all lanes have read what they need of the tile
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
