#include "kernels/grouped_product.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "build_config.h"
#include "kernels/gemm.h"
#include "kernels/gemm_rows.h"
#include "kernels/gemm_sm90.h"
#include "kernels/host_product.h"
#include "kernels/op.h"

namespace flatshard {
namespace {

// The number of rows of all segments, and behind them.
int64_t rows_of(const GroupedProduct& g) { return g.transpose_a ? g.a.shape[0] : g.c.shape[0]; }

void check_grouped(const GroupedProduct& g) {
  const int64_t segments = g.offsets.size() - 1, rows = rows_of(g);
  const auto has_rows = [&](const Tensor& x) {
    return g.rows.empty() ? x.shape[0] == rows : g.rows.size() == rows && g.rows.dtype == DType::i32;
  };
  const auto fits = [&] {
    if (g.a.shape.rank() != 2 || segments < 1) return false;
    if (g.transpose_a)
      return g.b.shape.rank() == 2 && has_rows(g.b) &&
             g.c.shape == Shape({segments, g.a.shape[1], g.b.shape[1]});
    return g.b.shape.rank() == 3 && g.b.shape[0] == segments && has_rows(g.a) &&
           g.b.shape[g.transpose_b ? 2 : 1] == g.a.shape[1] &&
           g.c.shape == Shape({rows, g.b.shape[g.transpose_b ? 1 : 2]});
  };
  check(fits(), "grouped_product: c ", g.c.shape, " = a ", g.a.shape, g.transpose_a ? "^T" : "", " b ",
        g.b.shape, g.transpose_b ? "^T" : "", " in ", segments, " segments",
        g.rows.empty() ? "" : str(", rows ", g.rows.dtype, " ", g.rows.shape), ": shapes do not fit");
  check(g.rows.empty() || g.transpose_a || g.transpose_b, "grouped_product: dx gathers no rows");
  check(g.offsets.dtype == DType::i32, "grouped_product: offsets are ", g.offsets.dtype, ", must be i32");
  check(g.used.empty() || (g.used.dtype == DType::i32 && g.used.size() == rows),
        "grouped_product: used rows are ", g.used.dtype, " ", g.used.shape, ", must be i32 (", rows, ")");
  check(rows % kSegmentRows == 0, "grouped_product: ", rows, " rows, must be a multiple of ", kSegmentRows);
  check(is_float(g.a.dtype) && g.b.dtype == g.a.dtype &&
            (g.c.dtype == g.a.dtype || (g.transpose_a && g.c.dtype == DType::f32)),
        "grouped_product: c is ", g.c.dtype, ", a is ", g.a.dtype, ", b is ", g.b.dtype,
        "; they must have one dtype, but c of sums over rows may be f32");
  const auto [a, b, c] = strides_of(g);
  const bool whole = a >= g.a.shape[1] && b >= g.b.shape[-1] && c >= g.c.shape[-1] &&
                     (g.transpose_a ? g.c_stride : g.b_stride) == 0;
  check(whole, "grouped_product: rows of ", g.a.shape[1], ", ", g.b.shape[-1], " and ", g.c.shape[-1],
        " elements, ", a, ", ", b, " and ", c, " apart: only matrices of rows may lie apart");
  check(!(g.transpose_a && g.transpose_b), "grouped_product: sums over rows have no transposed b");
  check(std::holds_alternative<std::monostate>(g.end) ||
            !(g.transpose_a || g.accumulate || g.alpha != 1 || g.c_stride != 0),
        "grouped_product: sums, and products with a factor or of columns, have no end");
}

// Matrix e of b, or of c.
Tensor matrix_of(const GroupedProduct& g, const Tensor& all, int64_t e) {
  Tensor matrix = all;
  matrix.shape = {all.shape[1], all.shape[2]};
  const int64_t between = g.between ? g.between : matrix.size();
  if (matrix.data) matrix.data = static_cast<char*>(matrix.data) + e * between * size_of(all.dtype);
  return matrix;
}

// The operand whose rows can be gathered.
const Tensor& x_of(const GroupedProduct& g) { return g.transpose_a ? g.b : g.a; }

int64_t stride_of_x(const GroupedProduct& g) { return g.transpose_a ? strides_of(g).b : strides_of(g).a; }

// The rows of each segment, if they are few (gemm_rows.h); else 0.
int64_t few_rows(const GroupedProduct& g) {
  return !g.transpose_a && g.most_rows > 0 && g.most_rows <= kFewRows ? g.most_rows : 0;
}

// Rows [row, row + count) of a matrix whose rows lie `stride` elements apart.
Tensor rows_at(const Tensor& of, int64_t stride, int64_t row, int64_t count) {
  Tensor rows = of;
  rows.shape = {count, of.shape[1]};
  if (rows.data) rows.data = static_cast<char*>(rows.data) + row * stride * size_of(of.dtype);
  return rows;
}

// The product of as many rows as `x` has, from `row` on, with the matrix of segment e, added to c if
// `accumulate`.
Gemm part_of(const GroupedProduct& g, const Tensor& c, const Tensor& x, int64_t e, int64_t row,
             bool accumulate) {
  const GemmStrides strides = strides_of(g);
  const int64_t count = x.shape[0], of_x = g.rows.empty() ? stride_of_x(g) : 0;
  return {.c = g.transpose_a ? c : rows_at(c, strides.c, row, count),
          .a = g.transpose_a ? rows_at(g.a, strides.a, row, count) : x,
          .b = g.transpose_a ? x : matrix_of(g, g.b, e),
          .transpose_a = g.transpose_a,
          .transpose_b = g.transpose_b,
          .accumulate = accumulate,
          .alpha = g.alpha,
          .a_stride = g.transpose_a ? g.a_stride : of_x,
          .b_stride = g.transpose_a ? of_x : 0,
          .c_stride = g.c_stride};
}

// Copies rows of x, `stride` elements apart, by their indices.
void gather(const Tensor& to, const Tensor& x, int64_t stride, const int32_t* index) {
  const int64_t bytes = x.shape[1] * size_of(x.dtype), apart = stride * size_of(x.dtype);
  auto* row = static_cast<char*>(to.data);
  for (int64_t i = 0; i < to.shape[0]; ++i, row += bytes) {
    if (index[i] < 0) {
      std::memset(row, 0, static_cast<size_t>(bytes));
      continue;
    }
    check(index[i] < x.shape[0], "grouped_product: row ", index[i], " of ", x.shape[0]);
    std::memcpy(row, static_cast<const char*>(x.data) + index[i] * apart, static_cast<size_t>(bytes));
  }
}

void clear(const Tensor& t) { std::memset(t.data, 0, static_cast<size_t>(t.bytes())); }
// Clears rows [begin, end) of c.
void clear_rows(const GroupedProduct& g, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) clear(rows_at(g.c, strides_of(g).c, row, 1));
}

// c = sums, or c += sums, rounded once.
void round_sums(const Tensor& c, const Tensor& sums, bool accumulate) {
  visit_float(c.dtype, [&]<class T>() {
    const auto* const from = sums.as<float>();
    T* const to = c.as<T>();
    for (int64_t i = 0; i < c.size(); ++i)
      to[i] = T(accumulate ? from[i] + static_cast<float>(to[i]) : from[i]);
  });
}

// The numbers of rows that are multiplied at a time: whole segments in as few products as possible, and what
// is left of the used rows in one of whole steps.
constexpr int64_t kRowStep = 16, kMostRows = 256;

// The same products on the CPU, a piece of each segment at a time.
class HostSegments {
 public:
  HostSegments(Arena& scratch, const GroupedProduct& g)
      : g_(g),
        used_(g.used.empty() ? g.rows : g.used),
        few_(few_rows(g)),
        sums_(g.transpose_a && g.c.dtype != DType::f32
                  ? scratch.alloc(DType::f32, {g.c.shape[1], g.c.shape[2]})
                  : Tensor{}),
        gathered_(g.rows.empty()
                      ? Tensor{}
                      : scratch.alloc(g.a.dtype, {few_ > 0 ? few_ : most_rows(g), x_of(g).shape[1]})) {
    if (few_ > 0) return;
    const int64_t begin = scratch.mark();
    for (int64_t rows = used_.empty() ? kSegmentRows : kRowStep; rows < kSegmentRows; rows += kRowStep)
      add_products(scratch, rows);
    for (int64_t rows = kSegmentRows; rows <= most_rows(g); rows += kSegmentRows) add_products(scratch, rows);
    scratch.alloc(DType::u8, {shared_end_ - begin});  // the scratch of all products
  }

  void run() const {
    const auto* const offsets = g_.offsets.as<int32_t>();
    const int64_t segments = g_.offsets.size() - 1;
    for (int64_t e = 0; e < segments; ++e)
      g_.transpose_a ? add_rows(e, offsets[e], offsets[e + 1]) : multiply_rows(e, offsets[e], offsets[e + 1]);
    if (!g_.transpose_a && !g_.accumulate) clear_rows(g_, offsets[segments], g_.c.shape[0]);
  }

 private:
  struct Products {
    HostProduct first, next;  // next adds to the sums of a segment
  };

  static int64_t most_rows(const GroupedProduct& g) { return std::min(kMostRows, rows_of(g)); }
  // All products share their scratch, as they run one after another.
  void add_products(Arena& scratch, int64_t rows) {
    const Tensor like_x{nullptr, g_.a.dtype, {rows, x_of(g_).shape[1]}, g_.a.device};
    const auto product = [&](bool adds) {
      const ArenaScope scope(scratch);
      HostProduct made(scratch, part_of(g_, target(0), like_x, 0, 0, adds));
      shared_end_ = std::max(shared_end_, scratch.mark());
      return made;
    };
    products_.emplace(rows, Products{product(g_.accumulate && !g_.transpose_a), product(g_.transpose_a)});
  }
  Tensor target(int64_t e) const {
    if (!g_.transpose_a) return g_.c;
    return sums_.empty() ? matrix_of(g_, g_.c, e) : sums_;
  }
  // Where the used rows of a segment end.
  int64_t used_end(int64_t begin, int64_t end) const {
    const int32_t* const number = used_.empty() ? nullptr : used_.as<int32_t>();
    while (number && end > begin && number[end - 1] < 0) --end;
    return end;
  }
  // The rows of the next product, for this many used ones.
  static int64_t rows_of_piece(int64_t used) {
    if (used >= kSegmentRows) return std::min(used / kSegmentRows * kSegmentRows, kMostRows);
    return (used + kRowStep - 1) / kRowStep * kRowStep;
  }
  Tensor x(int64_t row, int64_t count) const {
    if (gathered_.empty()) return rows_at(x_of(g_), stride_of_x(g_), row, count);
    const Tensor rows = gathered_.slice(0, count);
    gather(rows, x_of(g_), stride_of_x(g_), g_.rows.as<int32_t>() + row);
    return rows;
  }
  void multiply_rows(int64_t e, int64_t begin, int64_t end) const {
    int64_t row = begin;
    if (few_ > 0 && begin < end) {
      multiply_few_rows(part_of(g_, g_.c, x(begin, few_), e, begin, g_.accumulate));
      row += few_;
    } else {
      for (const int64_t used = used_end(begin, end); row < used;) {
        const int64_t count = rows_of_piece(used - row);
        products_.at(count).first.run(part_of(g_, g_.c, x(row, count), e, row, g_.accumulate));
        row += count;
      }
    }
    if (!g_.accumulate) clear_rows(g_, row, end);
  }
  void add_rows(int64_t e, int64_t begin, int64_t end) const {
    const bool in_place = sums_.empty();
    bool adds = in_place && g_.accumulate;
    const int64_t used = used_end(begin, end);
    if (begin == used && !adds) clear(target(e));
    for (int64_t row = begin; row < used; adds = true) {
      const int64_t count = rows_of_piece(used - row);
      const Products& products = products_.at(count);
      (adds ? products.next : products.first).run(part_of(g_, target(e), x(row, count), e, row, adds));
      row += count;
    }
    if (!in_place) round_sums(matrix_of(g_, g_.c, e), sums_, g_.accumulate);
  }

  GroupedProduct g_;
  Tensor used_;
  int64_t few_;                           // the rows of each segment that few rows are; 0: any number of rows
  Tensor sums_;                           // the sums of one segment, if c has 16 bits
  Tensor gathered_;                       // rows of x that are not side by side
  std::map<int64_t, Products> products_;  // by their number of rows
  int64_t shared_end_ = 0;                // where their scratch ends
};

// As a plan sees it: a product of all rows, as many for each segment. The last size is the number of
// segments.
OpCall call_of(const GroupedProduct& g) {
  const int64_t segments = g.offsets.size() - 1, rows = rows_of(g);
  const int64_t flags = (g.transpose_a ? 1 : 0) + (g.transpose_b ? 2 : 0) + kFlagOwn;
  const Tensor& matrices = g.transpose_a ? g.c : g.b;
  const std::array<int64_t, 3> extents =
      g.transpose_a ? std::array{segments * matrices.shape[1], matrices.shape[2], rows / segments}
                    : std::array{rows, g.c.shape[1], g.a.shape[1]};
  return {.name = "grouped_product",
          .shape = {extents[0], extents[1], extents[2], flags, segments},
          .dtype = g.a.dtype,
          .flops = flops(g),
          .bytes = min_bytes(g)};
}

void multiply_on_gpu(Stream& stream, const GroupedProduct& g) {
  if constexpr (kCublasBuilt) {
    check(
        has_own_products(stream.device()) && cuda::multiplies_groups_on_sm90(g),
        "grouped_product: it takes a GPU of sm_90 (Hopper), a build with kernels for it, and 16-bit operands "
        "whose rows begin at multiples of 16 bytes");
    return cuda::grouped_product_sm90(stream, g);
  }
  stream.run("grouped_product", [] {});  // throws unless the stream is planning
}

}  // namespace

GemmStrides strides_of(const GroupedProduct& g) {
  const auto or_width = [](int64_t stride, const Tensor& of) { return stride ? stride : of.shape[-1]; };
  return {.a = or_width(g.a_stride, g.a), .b = or_width(g.b_stride, g.b), .c = or_width(g.c_stride, g.c)};
}

void grouped_product(Stream& stream, Arena& scratch, const GroupedProduct& g) {
  check_grouped(g);
  if (g.c.empty()) return;
  if (rows_of(g) == 0) return g.transpose_a && !g.accumulate ? zero(stream, g.c) : void();
  const ArenaScope scope(scratch);
  const bool on_gpu = stream.device().is_cuda(), ends = on_gpu && cuda::ends_groups_on_sm90(g);
  const std::optional<HostSegments> on_cpu =
      on_gpu ? std::nullopt : std::optional<HostSegments>(std::in_place, scratch, g);
  GroupedProduct made = g;
  if (!ends) made.end = {};
  if (stream.recorded()) stream.note(call_of(made));
  if (!stream.planning()) {
    if (on_gpu)
      multiply_on_gpu(stream, made);
    else
      stream.run("grouped_product", [=] { on_cpu->run(); });
  }
  if (!ends) run(stream, g.end);
}

double min_bytes(const GroupedProduct& g) {
  // Gathered rows are counted as often as they are read.
  const Tensor& x = x_of(g);
  const double per_row = x.shape[0] > 0 ? bytes_of(x) / static_cast<double>(x.shape[0]) : 0;
  const double of_x =
      g.rows.empty() ? bytes_of(x) : bytes_of(g.rows) + per_row * static_cast<double>(rows_of(g));
  return bytes_of(g.transpose_a ? g.a : g.b, g.c) + of_x + (g.accumulate ? bytes_of(g.c) : 0) +
         more_bytes(g.end, bytes_of(g.c));
}
double flops(const GroupedProduct& g) {
  const Tensor& matrices = g.transpose_a ? g.c : g.b;
  return 2.0 * static_cast<double>(rows_of(g) * matrices.shape[1] * matrices.shape[2]);
}

namespace cuda {

bool multiplies_groups_on_sm90(const GroupedProduct& g) {
  constexpr int64_t kMost = int64_t{1} << 30;
  const auto fits = [](const Tensor& t, int64_t stride) {
    return rows_are_aligned(t, stride) && t.size() / t.shape[-1] <= kMost && stride <= kMost;
  };
  const auto [a, b, c] = strides_of(g);
  return size_of(g.a.dtype) == 2 && fits(g.a, a) && fits(g.b, b) && fits(g.c, c) && g.c.shape[-1] % 8 == 0;
}

bool ends_groups_on_sm90(const GroupedProduct& g) {
  return !std::holds_alternative<RopeForward>(g.end) && fits_end(g.end, g.c, g.c.shape[-1], g.transpose_b);
}

}  // namespace cuda

}  // namespace flatshard
