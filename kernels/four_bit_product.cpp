#include "kernels/four_bit_product.h"

#include <algorithm>

#include "kernels/elementwise.h"
#include "kernels/four_bit_decode.h"
#include "kernels/gemm_cut.h"
#include "kernels/gemm_rows.h"
#include "kernels/op.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

constexpr int64_t kElementsPerTask = 32768;  // elements that one task decodes
constexpr int64_t kRowsAhead = 8;            // how many rows ahead codes are prefetched
constexpr int64_t kFewElements = 8192;       // elements decoded at a time for a product of few rows

// A product on the CPU: g lacks the data of b, which is w decoded and rounded to `compute`.
struct Undecoded {
  Gemm g;
  std::vector<FourBitMatrix> w;
  DType compute;
};

// The shape of w as one matrix.
Shape shape_of(const std::vector<FourBitMatrix>& w) {
  int64_t rows = 0;
  for (const FourBitMatrix& matrix : w) rows += matrix.shape[0];
  return {rows, w.front().shape[1]};
}

// A part of w: with transpose_b rows [begin, end), otherwise columns [begin, end). decode() writes rows
// [first, last) of it to `to`, where the rows of the part are `row` elements apart.
struct Part {
  int64_t begin, end, row;

  int64_t rows(const Undecoded& p) const { return p.g.transpose_b ? end - begin : p.g.b.shape[0]; }
};

template <class T, class Rounded>
void decode(const Undecoded& p, const Part& part, int64_t first, int64_t last, T* to) {
  const int64_t in = p.g.b.shape[1], length = p.g.transpose_b ? in : part.end - part.begin;
  const int64_t first_row = p.g.transpose_b ? part.begin : 0, first_column = p.g.transpose_b ? 0 : part.begin;
  int64_t above = 0;  // number of rows in the matrices above
  for (const FourBitMatrix& w : p.w) {
    const int64_t end = std::min(last, above + w.shape[0] - first_row);
    const FourBitDecoder<T, Rounded> decoder(w);
    for (; first < end; ++first) {
      const int64_t element = (first_row + first - above) * in + first_column;
      // The hardware does not prefetch such distant rows.
      if (length < in) decoder.fetch(element + kRowsAhead * in, length);
      decoder.decode(to + first * part.row, element, length);
    }
    above += w.shape[0];
  }
}

void decode(const Undecoded& p, const Part& part, int64_t first, int64_t last, void* to) {
  switch (p.compute) {
    case DType::bf16:
      return decode<bf16, bf16>(p, part, first, last, static_cast<bf16*>(to));
    case DType::f16:
      return decode<float, f16>(p, part, first, last, static_cast<float*>(to));
    default:
      return decode<float, float>(p, part, first, last, static_cast<float*>(to));
  }
}

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A product with few rows: each task decodes the part of w for some columns of c into its own part of
// `workspace`, and multiplies it at once.
class FewRowsProduct {
 public:
  explicit FewRowsProduct(const Undecoded& p) : p_(p), N_(p.g.c.shape[1]), K_(p.g.a.shape[1]) {
    const int64_t unit = few_rows_unit(p.g);
    columns_ = std::min(N_, unit * std::max<int64_t>(1, kFewElements / (unit * K_)));
    per_thread_ = aligned(columns_ * K_ * size_of(p.g.b.dtype));
  }

  int64_t workspace_bytes() const { return thread_count() * per_thread_; }

  void run(const Tensor& workspace) const {
    const int64_t per_task = columns_ * std::max<int64_t>(1, kElementsPerTask / (columns_ * K_));
    parallel_for((N_ + per_task - 1) / per_task, [&](int64_t task, int worker) {
      const int64_t end = std::min(N_, (task + 1) * per_task);
      void* b = workspace.as<uint8_t>() + worker * per_thread_;
      for (int64_t column = task * per_task; column < end; column += columns_) {
        const Part part{column, std::min(end, column + columns_), p_.g.transpose_b ? K_ : columns_};
        decode(p_, part, 0, part.rows(p_), b);
        multiply_few_rows(p_.g, {.b = b, .b_row = part.row, .begin = part.begin, .end = part.end});
      }
    });
  }

 private:
  Undecoded p_;
  int64_t N_, K_;
  int64_t columns_;  // columns of c that are decoded for at a time
  int64_t per_thread_;
};

// A product with many rows: decodes the panels of as many columns of tiles as there are threads, then
// multiplies all of their tiles.
class PanelProduct {
 public:
  explicit PanelProduct(const Undecoded& p) : p_(p), panel_row_(panel_row(p.g)), product_(p.g, panel_row_) {
    const Part largest = part(0);
    panel_bytes_ = aligned(largest.rows(p) * panel_row_ * size_of(p.g.b.dtype));
    panels_ = std::min<int64_t>(thread_count(), product_.columns());
  }

  int64_t panel_bytes() const { return panels_ * panel_bytes_; }
  int64_t workspace_bytes() const { return thread_count() * product_.scratch_bytes(); }

  void run(const Tensor& panels, const Tensor& workspace) const {
    for (int64_t begin = 0; begin < product_.columns(); begin += panels_) {
      const int64_t end = std::min(product_.columns(), begin + panels_);
      const auto panel = [&](int64_t column) {
        return panels.as<uint8_t>() + (column - begin) * panel_bytes_;
      };
      const int64_t rows = part(begin).rows(p_);  // the last panel may have fewer
      const int64_t per_task =
          std::max<int64_t>(1, kElementsPerTask / (panel_bytes_ / size_of(p_.g.b.dtype) / rows));
      const int64_t tasks = (rows + per_task - 1) / per_task;
      parallel_for((end - begin) * tasks, [&](int64_t task) {
        const int64_t column = begin + task / tasks, first = task % tasks * per_task;
        const Part p = part(column);
        decode(p_, p, first, std::min(first + per_task, p.rows(p_)), panel(column));
      });
      product_.run(begin, end, workspace, panel);
    }
  }

 private:
  static int64_t panel_row(const Gemm& g) {
    return g.transpose_b ? g.a.shape[1] : CutProduct::tile_columns(extents_of(g));
  }
  Part part(int64_t column) const {
    return {product_.first_column(column), product_.end_column(column), panel_row_};
  }

  Undecoded p_;
  int64_t panel_row_;
  CutProduct product_;
  int64_t panel_bytes_, panels_;
};

void multiply_on_cpu(Stream& stream, Arena& scratch, const Undecoded& p) {
  constexpr const char* kName = "four_bit_product";
  if (stream.recorded()) {
    const auto [M, N, K] = extents_of(p.g);
    stream.note({.name = kName,
                 .shape = {M, N, K, p.g.transpose_b ? 2 : 0},
                 .dtype = p.compute,
                 .flops = flops(p.g),
                 .bytes = min_bytes(p.g)});
  }
  if (p.compute != DType::f16 && has_few_rows(p.g)) {  // gemm() has no f16 products of few rows
    const FewRowsProduct product(p);
    const Tensor workspace = scratch.alloc(DType::u8, {product.workspace_bytes()});
    return stream.run(kName, [=] { product.run(workspace); });
  }
  const PanelProduct product(p);
  const Tensor panels = scratch.alloc(DType::u8, {product.panel_bytes()});
  const Tensor workspace = scratch.alloc(DType::u8, {product.workspace_bytes()});
  stream.run(kName, [=] { product.run(panels, workspace); });
}

Tensor converted(Stream& stream, Arena& scratch, const Tensor& t, DType dtype, int64_t stride = 0) {
  const Tensor y = scratch.alloc(dtype, t.shape);
  cast(stream, {.y = y, .x = t, .x_stride = stride});
  return y;
}

void check_product(const FourBitProduct& p, DType compute) {
  constexpr const char* kOp = "four_bit_product";
  check(!p.w.empty(), kOp, ": no weight");
  for (const FourBitMatrix& w : p.w) {
    check_matrix(kOp, w);
    check(w.shape[1] == p.w.front().shape[1], kOp, ": weights ", p.w.front().shape, " and ", w.shape,
          " must have the same number of columns");
  }
  const Shape w = shape_of(p.w);
  check(p.a.shape.rank() == 2 && p.c.shape.rank() == 2, kOp, ": a ", p.a.shape, " and c ", p.c.shape,
        " must be matrices");
  const int64_t N = w[p.transpose_w ? 0 : 1], K = w[p.transpose_w ? 1 : 0];
  check(N > 0 && K > 0 && p.a.shape[1] == K && p.c.shape == Shape({p.a.shape[0], N}), kOp, ": c ", p.c.shape,
        " = a ", p.a.shape, " w ", w, p.transpose_w ? "^T" : "", ": shapes do not fit");
  check(is_float(p.a.dtype) && is_float(p.c.dtype) && is_float(compute), kOp, ": c is ", p.c.dtype, ", a is ",
        p.a.dtype, ", compute is ", compute, "; they must be f32, bf16 or f16");
  check(p.addend.empty() || (p.addend.shape == p.c.shape && p.addend.dtype == p.c.dtype && !p.accumulate),
        kOp, ": the addend is ", p.addend.dtype, " ", p.addend.shape, ", must be like c ", p.c.dtype, " ",
        p.c.shape, ", without accumulate");
  check(p.bias.empty() || (p.bias.size() == N && is_float(p.bias.dtype)), kOp, ": bias is ", p.bias.dtype,
        " ", p.bias.shape, ", must be f32, bf16 or f16 (", N, ")");
}

}  // namespace

void four_bit_product(Stream& stream, Arena& scratch, const FourBitProduct& p) {
  const DType compute = p.compute.value_or(p.a.dtype);
  check_product(p, compute);
  if (p.c.empty()) return;
  const ArenaScope scope(scratch);
  const bool on_gpu = stream.device().is_cuda();
  // On the CPU f16 is multiplied in f32, as in gemm().
  const DType operand = compute == DType::f16 && !on_gpu ? DType::f32 : compute;
  const auto to_operand = [&](Tensor& t, int64_t& stride) {
    for (const DType dtype : {compute, operand}) {
      if (t.empty() || t.dtype == dtype) continue;
      t = converted(stream, scratch, t, dtype, stride);
      stride = 0;
    }
  };
  Gemm g{.c = p.c,
         .a = p.a,
         .b = {nullptr, operand, shape_of(p.w), p.w.front().codes.device},
         .bias = p.bias,
         .addend = p.addend,
         .transpose_b = p.transpose_w,
         .accumulate = p.accumulate,
         .tf32 = p.tf32,
         .a_stride = p.a_stride,
         .c_stride = p.c_stride};
  int64_t contiguous = 0;
  to_operand(g.a, g.a_stride);
  to_operand(g.bias, contiguous);
  const bool direct = p.c.dtype == operand || p.c.dtype == DType::f32;
  if (!direct) {
    g.c = scratch.alloc(DType::f32, p.c.shape);
    g.c_stride = 0;
    g.addend = {};
    const Tensor& addend = p.accumulate ? p.c : p.addend;
    g.accumulate = !addend.empty();
    if (g.accumulate) cast(stream, {.y = g.c, .x = addend, .x_stride = p.c_stride});
  }
  if (on_gpu) {
    g.b = scratch.alloc(operand, g.b.shape);
    int64_t row = 0;
    for (const FourBitMatrix& w : p.w) {
      dequantize_four_bit(stream, {.y = g.b.slice(row, row + w.shape[0]), .w = w});
      row += w.shape[0];
    }
    gemm(stream, scratch, g);
  } else {
    multiply_on_cpu(stream, scratch, {g, p.w, compute});
  }
  if (!direct) cast(stream, {.y = p.c, .x = g.c, .y_stride = p.c_stride});
}

double min_bytes(const FourBitProduct& p) {
  double bytes = bytes_of(p.a, p.bias, p.addend, p.c) + (p.accumulate ? bytes_of(p.c) : 0);
  for (const FourBitMatrix& w : p.w) bytes += stored_bytes(w);
  return bytes;
}
double flops(const FourBitProduct& p) {
  return 2.0 * static_cast<double>(p.a.shape[0]) * static_cast<double>(shape_of(p.w).size());
}

}  // namespace flatshard
