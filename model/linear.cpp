#include "model/linear.h"

#include <algorithm>
#include <span>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/four_bit_product.h"
#include "kernels/packed.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

// Returns whether parameters of these sizes can be joined. In a flat buffer a parameter begins at a multiple
// of 256 elements, a block of 8-bit moments: parameters that begin elsewhere would share blocks, and their
// unit would keep fp32 moments.
bool can_join(const std::vector<int64_t>& sizes) {
  constexpr int64_t kBlock = 256;
  return std::all_of(sizes.begin(), sizes.end() - 1, [](int64_t size) { return size % kBlock == 0; });
}

constexpr int64_t kAccess = 16;  // bytes of the widest access

// The number of columns rounded up to whole cache lines.
int64_t whole_lines(int64_t columns, DType dtype) {
  const int64_t line = 128 / size_of(dtype);
  return (columns + line - 1) / line * line;
}

}  // namespace

Linear::Linear(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& specs)
    : params_(&params), in_(specs.front().in) {
  declare_weights(params, config, specs);
  declare_biases(params, specs);
  std::vector<AdaptedLayer> adapted;
  for (size_t i = 0; i < specs.size(); ++i)
    if (const auto found = config.adapters.find(specs[i].path); found != config.adapters.end())
      adapted.push_back({layers_[i].column, specs[i].path, specs[i].in, specs[i].out, found->second});
  adapters_ = LayerAdapters(params, std::move(adapted), width_);
}

void Linear::declare_weights(ParamList& params, const ModelConfig& config,
                             const std::vector<LinearSpec>& specs) {
  const auto format_of = [&](const LinearSpec& spec) {
    const auto found = config.quantized.find(spec.path);
    return found == config.quantized.end() ? std::nullopt : std::optional(found->second);
  };
  std::vector<int64_t> sizes;
  bool alike = true;
  for (const LinearSpec& spec : specs) {
    sizes.push_back(spec.in * spec.out);
    alike = alike && format_of(spec) == format_of(specs.front());
  }
  const bool joins = alike && can_join(sizes);
  one_quantized_ = joins && format_of(specs.front());
  for (const LinearSpec& spec : specs) {
    const Init init = Init::normal(spec.init_std);
    Layer layer{.column = width_, .out = spec.out, .transposed = spec.transposed};
    ParamId w;
    if (const auto format = format_of(spec))
      layer.quantized.emplace(params, spec.path, FourBitWeight{*format, spec.out, spec.in}, init);
    else
      w = params.add({.name = spec.path + ".weight",
                      .shape = spec.transposed ? Shape{spec.in, spec.out} : Shape{spec.out, spec.in},
                      .init = init,
                      .joined = joins && !w_.empty()});
    w_.push_back(w);
    layers_.push_back(layer);
    width_ += spec.out;
  }
}

void Linear::declare_biases(ParamList& params, const std::vector<LinearSpec>& specs) {
  if (!specs.front().bias) return;
  std::vector<int64_t> sizes;
  for (const LinearSpec& spec : specs) sizes.push_back(spec.out);
  const bool joins = can_join(sizes);
  for (const LinearSpec& spec : specs)
    b_.push_back(params.add({.name = spec.path + ".bias",
                             .shape = {spec.out},
                             .init = Init::constant(0),
                             .role = ParamRole::bias,
                             .joined = joins && !b_.empty()}));
}

bool Linear::are_one_matrix() const { return one_quantized_ || are_joined(w_); }

bool Linear::are_joined(const std::vector<ParamId>& ids) const {
  return std::all_of(ids.begin() + 1, ids.end(),
                     [&](ParamId id) { return id.index >= 0 && (*params_)[id].joined; });
}

std::vector<Linear::Run> Linear::runs(bool joined) const {
  if (joined) return {{0, layers_.size()}};
  std::vector<Run> each;
  for (size_t i = 0; i < layers_.size(); ++i) each.push_back({i, i + 1});
  return each;
}

Tensor Linear::columns(const Tensor& y, Run run) const {
  if (y.shape.rank() < 2) return y;  // y is empty
  const Layer &first = layers_[run.begin], &last = layers_[run.end - 1];
  return packed_columns(y, first.column, {y.shape[0], last.column + last.out - first.column});
}

std::span<const ParamId> Linear::ids_of(const std::vector<ParamId>& all, Run run) {
  return std::span(all).subspan(run.begin, run.end - run.begin);
}

void Linear::multiply(Context& c, const ParamView& p, Run run, const Gemm& product, bool backward) const {
  const Layer& layer = layers_[run.begin];
  if (layer.quantized) {
    std::vector<FourBitMatrix> w;
    for (size_t i = run.begin; i < run.end; ++i) w.push_back(layers_[i].quantized->matrix(p));
    return four_bit_product(c.stream, c.scratch,
                            {.c = product.c,
                             .a = product.a,
                             .w = std::move(w),
                             .bias = product.bias,
                             .addend = product.addend,
                             .transpose_w = !backward,
                             .accumulate = product.accumulate,
                             .compute = layer.quantized->format().compute,
                             .tf32 = c.tf32,
                             .a_stride = product.a_stride,
                             .c_stride = product.c_stride});
  }
  Gemm g = product;
  g.b = p.joined(ids_of(w_, run));
  g.transpose_b = layer.transposed == backward;
  g.tf32 = c.tf32;
  gemm(c.stream, c.scratch, g);
}

bool Linear::is_quantized() const {
  return std::all_of(layers_.begin(), layers_.end(),
                     [](const Layer& layer) { return layer.quantized.has_value(); });
}

// Returns whether spare columns pay off: products of rows whose parts are not whole accesses are slower than
// separate passes.
bool Linear::can_use_spare_columns(const Context& c) const {
  const int64_t bytes = size_of(c.dtype);
  if (!c.stream.device().is_cuda() || adapters_.empty()) return false;
  for (const int64_t columns : {in_, width_, adapters_.ranks()})
    if (columns * bytes % kAccess != 0) return false;
  return std::all_of(layers_.begin(), layers_.end(), [&](const Layer& layer) {
    if (layer.quantized) return layer.quantized->format().compute.value_or(c.dtype) == c.dtype;
    return !layer.transposed;
  });
}

// Spare columns of x save a pass over y, 2 rows width elements, and cost a copy of w, 2 in width: from 2 in
// rows on, they save at least half. For spare columns of dy, swap in and width.
int64_t Linear::spare_of_x(const Context& c, int64_t rows) const {
  const bool pays = is_quantized() || rows >= 2 * in_;
  return pays && can_use_spare_columns(c) ? whole_lines(adapters_.ranks(), c.dtype) : 0;
}

// The gradient of a dropped input is not a product with a alone.
int64_t Linear::spare_of_y(const Context& c, int64_t rows) const {
  const bool pays = (is_quantized() || rows >= 2 * width_) && !adapters_.have_dropout();
  return pays && can_use_spare_columns(c) ? whole_lines(adapters_.ranks(), c.dtype) : 0;
}

// A copy of dy moves 2 * rows * width elements, a pass over dx 2 * rows * in elements.
Tensor Linear::with_spare_columns(Context& c, const Tensor& dy, bool wants_dx) const {
  const int64_t rows = dy.shape[0], spare = spare_of_y(c, rows);
  if (dy.shape[1] > width_ || !wants_dx || spare == 0 || in_ < 2 * width_) return dy;
  const Tensor wide = c.scratch.alloc(c.dtype, {rows, width_ + spare});
  cast(c.stream, {.y = packed_columns(wide, 0, dy.shape), .x = dy, .y_stride = wide.shape[1]});
  return wide;
}

void Linear::write_weights(Context& c, const ParamView& p, Run run, const Tensor& w, int64_t stride) const {
  if (!layers_[run.begin].quantized)
    return cast(c.stream, {.y = w, .x = p.joined(ids_of(w_, run)), .y_stride = stride});
  for (size_t i = run.begin; i < run.end; ++i) {
    const Layer& layer = layers_[i];
    Tensor rows = w;  // the rows of the layer
    rows.shape = {layer.out, in_};
    if (w.data)
      rows.data =
          static_cast<char*>(w.data) + (layer.column - layers_[run.begin].column) * stride * size_of(w.dtype);
    dequantize_four_bit(c.stream, {.y = rows, .w = layer.quantized->matrix(p), .y_stride = stride});
  }
}

void Linear::multiply_with_adapters(Context& c, const ParamView& p, Run run, const Gemm& product,
                                    bool backward) const {
  const ArenaScope scope(c.scratch);
  const int64_t ranks = adapters_.ranks();
  const Layer &first = layers_[run.begin], &last = layers_[run.end - 1];
  const int64_t out = last.column + last.out - first.column;
  Gemm g = product;
  g.a.shape = {product.a.shape[0], product.a.shape[1] + ranks};
  g.tf32 = c.tf32;
  if (backward) {
    g.b = c.scratch.alloc(c.dtype, {out + ranks, in_});
    write_weights(c, p, run, g.b.slice(0, out), in_);
    copy(c.stream, g.b.slice(out, out + ranks), adapters_.a(p));
    return gemm(c.stream, c.scratch, g);
  }
  const Tensor wide = c.scratch.alloc(c.dtype, {out, g.a_stride});
  write_weights(c, p, run, packed_columns(wide, 0, {out, in_}), g.a_stride);
  for (size_t i = run.begin; i < run.end; ++i) {
    const Layer& layer = layers_[i];
    const int64_t row = layer.column - first.column;
    adapters_.place_b(c, p, packed_columns(wide.slice(row, row + layer.out), in_, {layer.out, ranks}),
                      g.a_stride, layer.column);
  }
  g.b = packed_columns(wide, 0, {out, in_ + ranks});
  g.b_stride = g.a_stride;
  g.transpose_b = true;
  gemm(c.stream, c.scratch, g);
}

void Linear::forward(Context& c, const ParamView& p, const Tensor& y, const Tensor& x, const Tensor& addend) {
  check(addend.empty() || addend.shape == y.shape, "a linear layer adds ", addend.shape, " to ", y.shape);
  const bool has_bias = !b_.empty(), has_spare = x.shape[1] > in_;
  if (!adapters_.empty()) adapters_.project(c, p, x);
  for (const Run run : runs(are_one_matrix() && (!has_bias || are_joined(b_)))) {
    const Gemm product{.c = columns(y, run),
                       .a = packed_columns(x, 0, {x.shape[0], in_}),
                       .b = {},
                       .bias = has_bias ? p.joined(ids_of(b_, run)) : Tensor{},
                       .addend = columns(addend, run),
                       .a_stride = x.shape[1],
                       .c_stride = y.shape[1]};
    has_spare ? multiply_with_adapters(c, p, run, product, false) : multiply(c, p, run, product, false);
  }
  if (!has_spare) adapters_.add_update(c, p, y);
}

void Linear::restore_spare_columns(Context& c, const ParamView& p, const Tensor& x) {
  if (x.shape[1] > in_) adapters_.project(c, p, x);
}

void Linear::backward(Context& c, const ParamView& p, const GradView& g, const Tensor& dx,
                      const Tensor& dy_of_layer, const Tensor& x, bool accumulate) const {
  const ArenaScope scope(c.scratch);
  const Tensor dy = with_spare_columns(c, dy_of_layer, !dx.empty());
  const std::vector<Run> matrices = runs(are_one_matrix());
  for (const Run run : matrices) {
    const Layer& layer = layers_[run.begin];
    const Tensor dw = layer.quantized ? Tensor{} : g.joined(ids_of(w_, run));
    if (dw.empty()) continue;
    const Tensor in = packed_columns(x, 0, {x.shape[0], in_}), out = columns(dy, run);
    gemm(c.stream, c.scratch,
         {.c = dw,
          .a = layer.transposed ? in : out,
          .b = layer.transposed ? out : in,
          .transpose_a = true,
          .accumulate = g.accumulates(ids_of(w_, run)),
          .tf32 = c.tf32,
          .a_stride = layer.transposed ? x.shape[1] : dy.shape[1],
          .b_stride = layer.transposed ? dy.shape[1] : x.shape[1]});
  }
  if (!b_.empty())
    for (const Run run : runs(are_joined(b_)))
      if (const Tensor db = g.joined(ids_of(b_, run)); !db.empty())
        bias_backward(c.stream, c.scratch,
                      {.db = db,
                       .dy = columns(dy, run),
                       .accumulate = g.accumulates(ids_of(b_, run)),
                       .dy_stride = dy.shape[1]});
  const bool reads_du = dy.shape[1] > width_ && !adapters_.have_dropout();  // the last product reads du
  if (reads_du) adapters_.backward(c, p, g, {}, dy, x);
  if (!dx.empty())
    for (const Run run : matrices) {
      const Gemm product{.c = dx,
                         .a = columns(dy, run),
                         .b = {},
                         .accumulate = accumulate || run.begin > 0,
                         .a_stride = dy.shape[1]};
      if (reads_du && run.end == layers_.size())
        multiply_with_adapters(c, p, run, product, true);
      else
        multiply(c, p, run, product, true);
    }
  if (!reads_du) adapters_.backward(c, p, g, dx, dy, x);
}

}  // namespace flatshard
