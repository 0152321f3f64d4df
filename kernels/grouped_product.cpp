#include "kernels/grouped_product.h"

#include <array>
#include <cstring>
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

// The rows that are multiplied at a time.
int64_t rows_of_piece(const GroupedProduct& g) {
  return !g.transpose_a && g.most_rows > 0 && g.most_rows <= kFewRows ? g.most_rows : kSegmentRows;
}

// Rows [row, row + count) of a matrix whose rows lie `stride` elements apart.
Tensor rows_at(const Tensor& of, int64_t stride, int64_t row, int64_t count) {
  Tensor rows = of;
  rows.shape = {count, of.shape[1]};
  if (rows.data) rows.data = static_cast<char*>(rows.data) + row * stride * size_of(of.dtype);
  return rows;
}

// The product of a piece of rows from `row` on, of which `x` has those of x, with the matrix of segment e,
// added to c if `accumulate`.
Gemm part_of(const GroupedProduct& g, const Tensor& c, const Tensor& x, int64_t e, int64_t row,
             bool accumulate) {
  const GemmStrides strides = strides_of(g);
  const int64_t count = rows_of_piece(g), of_x = g.rows.empty() ? stride_of_x(g) : 0;
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

// The same products on the CPU, a piece of kSegmentRows rows at a time.
class HostSegments {
 public:
  HostSegments(Arena& scratch, const GroupedProduct& g)
      : g_(g),
        sums_(g.transpose_a && g.c.dtype != DType::f32
                  ? scratch.alloc(DType::f32, {g.c.shape[1], g.c.shape[2]})
                  : Tensor{}),
        gathered_(g.rows.empty() ? Tensor{} : scratch.alloc(g.a.dtype, {rows_of_piece(g), x_of(g).shape[1]})),
        first_(scratch, part_of(g, target(0), like_x(), 0, 0, g.accumulate && !g.transpose_a)),
        next_(scratch, part_of(g, target(0), like_x(), 0, 0, g.transpose_a)) {}

  void run() const {
    const auto* const offsets = g_.offsets.as<int32_t>();
    const int64_t segments = g_.offsets.size() - 1;
    for (int64_t e = 0; e < segments; ++e)
      g_.transpose_a ? add_rows(e, offsets[e], offsets[e + 1]) : multiply_rows(e, offsets[e], offsets[e + 1]);
    if (!g_.transpose_a && !g_.accumulate) clear_rows(g_, offsets[segments], g_.c.shape[0]);
  }

 private:
  Tensor target(int64_t e) const {
    if (!g_.transpose_a) return g_.c;
    return sums_.empty() ? matrix_of(g_, g_.c, e) : sums_;
  }
  // The shape of a piece of x.
  Tensor like_x() const {
    return gathered_.empty()
               ? Tensor{nullptr, g_.a.dtype, {rows_of_piece(g_), x_of(g_).shape[1]}, g_.a.device}
               : gathered_;
  }
  Tensor x(int64_t row) const {
    if (gathered_.empty()) return rows_at(x_of(g_), stride_of_x(g_), row, rows_of_piece(g_));
    gather(gathered_, x_of(g_), stride_of_x(g_), g_.rows.as<int32_t>() + row);
    return gathered_;
  }
  void multiply_rows(int64_t e, int64_t begin, int64_t end) const {
    if (const int64_t few = rows_of_piece(g_); few < kSegmentRows) {
      if (begin == end) return;
      multiply_few_rows(part_of(g_, g_.c, x(begin), e, begin, g_.accumulate));
      return g_.accumulate ? void() : clear_rows(g_, begin + few, end);
    }
    for (int64_t row = begin; row < end; row += kSegmentRows)
      first_.run(part_of(g_, g_.c, x(row), e, row, g_.accumulate));
  }
  void add_rows(int64_t e, int64_t begin, int64_t end) const {
    const bool in_place = sums_.empty(), keeps = in_place && g_.accumulate;
    if (begin == end && !keeps) clear(target(e));
    for (int64_t row = begin; row < end; row += kSegmentRows) {
      const bool adds = keeps || row > begin;
      (adds ? next_ : first_).run(part_of(g_, target(e), x(row), e, row, adds));
    }
    if (!in_place) round_sums(matrix_of(g_, g_.c, e), sums_, g_.accumulate);
  }

  GroupedProduct g_;
  Tensor sums_;      // the sums of one segment, if c has 16 bits
  Tensor gathered_;  // rows of x that are not side by side
  HostProduct first_, next_;
};

// As a plan sees it: a product of all rows, as many for each segment.
OpCall call_of(const GroupedProduct& g) {
  const int64_t segments = g.offsets.size() - 1, rows = rows_of(g);
  const int64_t flags = (g.transpose_a ? 1 : 0) + (g.transpose_b ? 2 : 0) + kFlagOwn;
  const Tensor& matrices = g.transpose_a ? g.c : g.b;
  const std::array<int64_t, 3> extents =
      g.transpose_a ? std::array{segments * matrices.shape[1], matrices.shape[2], rows / segments}
                    : std::array{rows, g.c.shape[1], g.a.shape[1]};
  return {.name = "grouped_product",
          .shape = {extents[0], extents[1], extents[2], flags},
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
