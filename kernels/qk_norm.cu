// RMSNorm and rotation of q and k on the GPU. A group of threads owns a row. For a norm of each head it is 8
// or 32 lanes of a warp: 8 lanes read either half of a head of 128 bf16 values by one access of 16 bytes
// each. For a norm of all heads it is a thread block. In the backward pass a thread block sums dw over its
// tokens: each group sums into its own row of shared memory (16 KiB for heads of 128 values), and the rows
// are added in order at the end; a group that is the whole block sums into its partial row.
//
// Instruction issue limits it (flat.cuh): for heads of 128 bf16 values, an element takes 31 instructions of a
// budget of 25, with 61 registers, and in the backward pass 30 of 38, with 114.

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

  // The cosines of a position; its sines follow.
  __device__ const float* of_position(int32_t position) const {
    require(position >= 0 && position < table_rows);
    return table + position * D;
  }
  // Those of a token, or null if there is no rotation.
  __device__ const float* of(int64_t token) const { return table ? of_position(positions[token]) : nullptr; }
};

// The cosines and sines of N pairs.
template <int N>
struct Angles {
  Floats<float, N> cosine, sine;

  __device__ static Angles load(const float* cosines, int64_t half, int64_t i) {
    return {load_floats<float, N>(cosines + i), load_floats<float, N>(cosines + half + i)};
  }
};

// N pairs of elements of a head, D/2 apart.
template <int N>
struct Pairs {
  float a[N], b[N];

  // Rotates the pairs by `sign` times their angles.
  __device__ void turn(const Angles<N>& angles, float sign) {
    for (int j = 0; j < N; ++j) {
      const float x = a[j], y = b[j], c = angles.cosine.element[j], s = angles.sine.element[j] * sign;
      a[j] = fmaf(x, c, -y * s);
      b[j] = fmaf(y, c, x * s);
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
    if (cosines) v.turn(Angles<N>::load(cosines, half, i), 1.0f);
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

// The place of a row among those of a block: its token, and its number among the token's rows of q or of k.
struct RowPlace {
  int token, row;
};

// The packs of the two halves of N pairs.
template <class T, int N>
struct PairPacks {
  RowPack<T, N> a, b;

  __device__ static PairPacks load(const T* at, int64_t half) {
    return {RowPack<T, N>::load(at), RowPack<T, N>::load(at + half)};
  }
};

// The backward pass of the rows of q, or of k, that a group of kLanes lanes handles: every kGroups-th row of
// the tokens of its block. A lane has kPacks packs of N pairs of each row, or of each slab of a wide row, and
// the sums of dw in the same columns.
//
// Copies of x, dy, cosines and sines to shared memory run kAhead rows ahead; a lane copies only what it reads
// itself, so they need no barrier. The position of the next row to be copied is loaded before that. Slabs are
// loaded when they are used.
template <class T, class W, int N, int kLanes, int kPacks, bool kWide>
class GroupBackward {
  static_assert(kWide || N > 1);
  static constexpr int kGroups = kThreads / kLanes, kAhead = kPacks == 1 ? 2 : 1;
  // Chunks of 16 bytes that a lane copies for a pack: the halves of x and dy, cosines and sines.
  static constexpr int kAngles = N / kPackSize<float>, kChunks = 4 + 2 * kAngles;
  static constexpr int kCopyBytes = kWide ? 0 : kAhead * kChunks * kPacks * kThreads * 16;

 public:
  // The shared memory for copies, and for the sums of each group over rows of this width.
  static int shared_bytes(int64_t width, bool wants_dw) {
    return kCopyBytes + (kGroups > 1 && wants_dw ? kGroups * static_cast<int>(width * sizeof(float)) : 0);
  }

  // The sums of dw are written to `partial` unless it is null.
  __device__ GroupBackward(const Backward<T, W>& b, bool is_q, float* partial)
      : b_(b),
        w_(is_q ? b.wq : b.wk),
        first_(is_q ? 0 : static_cast<int>(b.rows.q_rows)),
        count_(static_cast<int>(is_q ? b.rows.q_rows : b.rows.k_rows)),
        width_(static_cast<int>(is_q ? b.rows.q_width : b.rows.k_width)),
        half_(static_cast<int>(b.rows.D / 2)),
        partial_(partial) {
    const int64_t begin = blockIdx.x * b.block;
    const int group = static_cast<int>(threadIdx.x) / kLanes;
    end_ = static_cast<int>(begin + b.block < b.tokens ? begin + b.block : b.tokens);
    turns_ = ((end_ - static_cast<int>(begin)) * count_ + kGroups - 1) / kGroups;
    place_ = ahead_ = {static_cast<int>(begin) + group / count_, group % count_};
    sums_ = kGroups == 1 ? partial : shared_sums() + group * width_;
  }

  __device__ void run() {
    if constexpr (kWide) {
      clear_sums();
    } else {
      find_columns(0);
      start_copies();
    }
    for (int i = 0; i < turns_; ++i) {
      if constexpr (!kWide) take(i % kAhead);
      float dot = 0.0f;
      for_each_slab([&](int slab) {
        if constexpr (kWide) load_slab(slab);
        add_products(dot);
      });
      const float mean = group_sum<kLanes>(dot) / static_cast<float>(width_);
      for_each_slab([&](int slab) {
        if constexpr (kWide) load_slab(slab);
        write_dx(mean);
      });
      place_ = after(place_);
    }
    if constexpr (!kWide) {
      wait_for_copies<0>();
      if (partial_)
        for (int k = 0; k < kPacks; ++k) store_sums(k);
    }
    if (kGroups > 1 && partial_) join_groups();
  }

 private:
  __device__ static float* shared_sums() {
    extern __shared__ float4 shared[];
    return reinterpret_cast<float*>(shared) + kCopyBytes / sizeof(float);
  }
  // Where this lane keeps a chunk of a pack: 0 and 1 are the halves of x, 2 and 3 those of dy.
  template <class Element>
  __device__ static Element* copy_of(int turn, int k, int chunk) {
    extern __shared__ float4 shared[];
    const int index = (turn * kPacks + k) * kChunks + chunk;
    return reinterpret_cast<Element*>(shared + index * kThreads + threadIdx.x);
  }

  // The place of the group's next row.
  __device__ RowPlace after(RowPlace place) const {
    place.token += kGroups / count_;
    place.row += kGroups % count_;
    return place.row < count_ ? place : RowPlace{place.token + 1, place.row - count_};
  }
  // Groups without a row take part in sums.
  __device__ bool exists(const RowPlace& place) const { return place.token < end_; }
  // The index of a row's first element in a tensor whose tokens are `stride` apart.
  __device__ int64_t begin_of(const RowPlace& place, int64_t stride) const {
    const int64_t before = first_ == 0 ? 0 : b_.rows.q_rows * b_.rows.q_width;
    return place.token * stride + before + int64_t{place.row} * width_;
  }
  __device__ float rstd_of(const RowPlace& place) const {
    return exists(place) ? b_.rstd[place.token * b_.rows.rows() + first_ + place.row] : 0.0f;
  }

  template <class Body>
  __device__ void for_each_slab(Body body) const {
    if constexpr (kWide)
      for (int slab = 0; slab < width_ / 2; slab += kPacks * kLanes * N) body(slab);
    else
      body(0);
  }
  // Finds this lane's columns in the slab that begins with this pair.
  __device__ void find_columns(int slab) {
    for (int k = 0; k < kPacks; ++k) {
      const int pair = slab + (k * kLanes + static_cast<int>(threadIdx.x) % kLanes) * N;
      const int head = pair / half_;
      has_[k] = pair < width_ / 2;
      index_[k] = pair - head * half_;
      column_[k] = head * 2 * half_ + index_[k];
    }
  }

  // The weights of a pack, from the L1 cache: as registers they would spill.
  __device__ PairPacks<W, N> weights_of(int k) const {
    return has_[k] ? PairPacks<W, N>::load(w_ + column_[k], half_) : PairPacks<W, N>{};
  }

  __device__ int32_t position_of(const RowPlace& place) const {
    return b_.rotation.table && exists(place) ? b_.rotation.positions[place.token] : 0;
  }
  // Starts the copy of the row at ahead_, and moves on to the next one.
  __device__ void copy_ahead(int turn) {
    const bool is_read = exists(ahead_), turns = is_read && b_.rotation.table;
    const T *x = b_.x + begin_of(ahead_, b_.x_stride), *dy = b_.dy + begin_of(ahead_, b_.dy_stride);
    const float* const cosines = turns ? b_.rotation.of_position(ahead_position_) : nullptr;
    for (int k = 0; k < kPacks; ++k) {
      const auto copy = [&](int chunk, const void* from, bool exists) {
        copy_async(shared_address(copy_of<float>(turn, k, chunk)), from, has_[k] && exists);
      };
      for (int half = 0; half < 2; ++half) {
        copy(half, x + column_[k] + half * half_, is_read);
        copy(2 + half, dy + column_[k] + half * half_, is_read);
      }
      for (int i = 0; i < kAngles; ++i) {
        const float* const cosine = cosines + index_[k] + i * kPackSize<float>;
        copy(4 + i, cosine, turns);
        copy(4 + kAngles + i, cosine + half_, turns);
      }
    }
    commit_copies();
    ahead_ = after(ahead_);
    ahead_position_ = position_of(ahead_);
  }
  __device__ void start_copies() {
    ahead_position_ = position_of(ahead_);
    for (int turn = 0; turn < kAhead; ++turn) copy_ahead(turn);
    next_rstd_ = rstd_of(place_);
  }
  // Reads the row at place_, and starts the copy of the one kAhead rows later.
  __device__ void take(int turn) {
    wait_for_copies<kAhead - 1>();
    for (int k = 0; k < kPacks; ++k) {
      const auto pack = [&](int chunk) { return RowPack<T, N>::load(copy_of<T>(turn, k, chunk)); };
      x_[k] = {pack(0), pack(1)};
      set_gradient(k, {pack(2), pack(3)});
      Angles<N> angles;
      for (int i = 0; i < kAngles; ++i) {
        const auto cosine = load<float, kPackSize<float>>(copy_of<float>(turn, k, 4 + i));
        const auto sine = load<float, kPackSize<float>>(copy_of<float>(turn, k, 4 + kAngles + i));
        for (int j = 0; j < kPackSize<float>; ++j) {
          angles.cosine.element[i * kPackSize<float> + j] = cosine.element[j];
          angles.sine.element[i * kPackSize<float> + j] = sine.element[j];
        }
      }
      if (b_.rotation.table) g_[k].turn(angles, -1.0f);
    }
    copy_ahead(turn);
    rstd_ = next_rstd_;
    next_rstd_ = rstd_of(after(place_));
  }
  __device__ void load_slab(int slab) {
    find_columns(slab);
    const bool is_read = exists(place_);
    const T *x = b_.x + begin_of(place_, b_.x_stride), *dy = b_.dy + begin_of(place_, b_.dy_stride);
    const float* const cosines = is_read ? b_.rotation.of(place_.token) : nullptr;
    for (int k = 0; k < kPacks; ++k) {
      x_[k] = is_read && has_[k] ? PairPacks<T, N>::load(x + column_[k], half_) : PairPacks<T, N>{};
      set_gradient(k, is_read && has_[k] ? PairPacks<T, N>::load(dy + column_[k], half_) : PairPacks<T, N>{});
      if (cosines && has_[k]) g_[k].turn(Angles<N>::load(cosines, half_, index_[k]), -1.0f);
    }
    rstd_ = rstd_of(place_);
  }
  __device__ void set_gradient(int k, const PairPacks<T, N>& dy) {
    for (int j = 0; j < N; ++j) {
      g_[k].a[j] = dy.a[j];
      g_[k].b[j] = dy.b[j];
    }
  }

  // Adds the products of g and xhat to `dot`, and those without w to the sums of dw.
  __device__ void add_products(float& dot) {
    for (int k = 0; k < kPacks; ++k) {
      const PairPacks<W, N> weight = weights_of(k);
      Pairs<N> xhat;
      for (int j = 0; j < N; ++j) {
        xhat.a[j] = x_[k].a[j] * rstd_;
        xhat.b[j] = x_[k].b[j] * rstd_;
        dot = fmaf(g_[k].a[j] * (weight.a[j] + b_.offset), xhat.a[j], dot);
        dot = fmaf(g_[k].b[j] * (weight.b[j] + b_.offset), xhat.b[j], dot);
      }
      if (!partial_) continue;
      if constexpr (kWide) load_sums(k);
      if (b_.round_xhat)
        add_to_sums(k, PairPacks<T, N>{RowPack<T, N>::rounded(xhat.a), RowPack<T, N>::rounded(xhat.b)});
      else
        add_to_sums(k, xhat);
      if constexpr (kWide) store_sums(k);
    }
  }
  template <class Factors>
  __device__ void add_to_sums(int k, const Factors& xhat) {
    for (int j = 0; j < N; ++j) {
      sum_[k].a[j] += g_[k].a[j] * xhat.a[j];
      sum_[k].b[j] += g_[k].b[j] * xhat.b[j];
    }
  }
  __device__ void write_dx(float mean) const {
    if (!exists(place_)) return;
    T* const dx = b_.dx + begin_of(place_, b_.dx_stride);
    for (int k = 0; k < kPacks; ++k) {
      if (!has_[k]) continue;
      const PairPacks<W, N> weight = weights_of(k);
      Pairs<N> gradient;
      for (int j = 0; j < N; ++j) {
        gradient.a[j] = rstd_ * (g_[k].a[j] * (weight.a[j] + b_.offset) - x_[k].a[j] * rstd_ * mean);
        gradient.b[j] = rstd_ * (g_[k].b[j] * (weight.b[j] + b_.offset) - x_[k].b[j] * rstd_ * mean);
      }
      RowPack<T, N>::rounded(gradient.a).store(dx + column_[k]);
      RowPack<T, N>::rounded(gradient.b).store(dx + column_[k] + half_);
    }
  }

  // Sums in memory: a row for the group, in the order of PartialRow.
  __device__ void clear_sums() {
    if (!partial_) return;
    for (int i = static_cast<int>(threadIdx.x) % kLanes; i < width_; i += kLanes) sums_[i] = 0.0f;
    __syncthreads();
  }
  template <class Body>
  __device__ void for_each_piece(int k, Body body) {
    using Row = PartialRow<N>;
    if (!has_[k]) return;
    for (int piece = 0; piece < Row::kPieces; ++piece) {
      body(sums_ + Row{width_}.place(column_[k], piece), sum_[k].a + piece * Row::kPiece);
      body(sums_ + Row{width_}.place(column_[k] + half_, piece), sum_[k].b + piece * Row::kPiece);
    }
  }
  __device__ void load_sums(int k) {
    using Row = PartialRow<N>;
    for_each_piece(k, [](const float* at, float* sums) {
      const auto piece = load<float, Row::kPiece>(at);
      for (int j = 0; j < Row::kPiece; ++j) sums[j] = piece.element[j];
    });
  }
  __device__ void store_sums(int k) {
    using Row = PartialRow<N>;
    for_each_piece(k,
                   [](float* at, const float* sums) { store<float, Row::kPiece>(at, Row::piece_of(sums)); });
  }
  // Adds the sums of the groups, in order.
  __device__ void join_groups() const {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < width_; i += kThreads) {
      float sum = 0.0f;
      for (int group = 0; group < kGroups; ++group) sum += shared_sums()[group * width_ + i];
      partial_[i] = sum;
    }
    __syncthreads();
  }

  const Backward<T, W>& b_;
  const W* w_;
  int first_, count_, width_, half_;    // the token's first row and number of rows, and their elements
  int end_, turns_;                     // the end of the block's tokens, and the rows of a group
  float *partial_, *sums_;              // the sums of the block and of the group
  RowPlace place_, ahead_;              // of the row that is computed, and of the one that is copied next
  bool has_[kPacks];                    // false past the end of a row
  int column_[kPacks], index_[kPacks];  // the first element in the row, and its pair in the head
  PairPacks<T, N> x_[kPacks];
  Pairs<N> g_[kPacks], sum_[kPacks] = {};  // the rotated gradient; the sums of dw
  float rstd_, next_rstd_;
  int32_t ahead_position_;
};

template <class T, class W, int N, int kLanes, int kPacks, bool kWide>
__global__ void __launch_bounds__(kThreads, kPacks == 1 ? 2 : 1) backward_kernel(Backward<T, W> b) {
  using Group = GroupBackward<T, W, N, kLanes, kPacks, kWide>;
#pragma unroll 1
  for (int part = 0; part < 2; ++part) {
    const bool is_q = part == 0;
    float* const partials = is_q ? b.partial_dwq : b.partial_dwk;
    const int64_t width = is_q ? b.rows.q_width : b.rows.k_width;
    Group(b, is_q, partials ? partials + blockIdx.x * width : nullptr).run();
  }
}

// Calls launch.operator()<lanes>() with the number of lanes of a row.
template <int N, class Launch>
void visit_lanes(const QkRows& rows, Launch&& launch) {
  if constexpr (N > 1)
    if (rows.widest() / 2 / N <= 8) return launch.template operator()<8>();
  if (rows.widest() <= kWidestOfWarp) return launch.template operator()<32>();
  launch.template operator()<kThreads>();
}

// Calls launch.operator()<lanes, packs of a lane, whether rows are wider than these>().
template <int N, class Launch>
void visit_packs(const QkRows& rows, Launch&& launch) {
  visit_lanes<N>(rows, [&]<int kLanes>() {
    const int64_t packs = (rows.widest() / 2 + kLanes * N - 1) / (kLanes * N);
    if constexpr (N > 1) {
      if (packs == 1) return launch.template operator()<kLanes, 1, false>();
      if constexpr (kLanes == kThreads)
        if (packs == 2) return launch.template operator()<kLanes, 2, false>();
    }
    if constexpr (N == 1 || kLanes > 8) launch.template operator()<kLanes, 1, true>();
  });
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
        visit_packs<N>(rows, [&]<int kLanes, int kPacks, bool kWide>() {
          const auto kernel = backward_kernel<T, W, N, kLanes, kPacks, kWide>;
          const int shared =
              GroupBackward<T, W, N, kLanes, kPacks, kWide>::shared_bytes(rows.widest(), !partial_dw.empty());
          allow_shared_bytes(kernel, shared);
          kernel<<<static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(shared), native(stream)>>>(b);
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
