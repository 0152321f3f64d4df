#include "model/linear.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "kernels/elementwise.h"
#include "kernels/gemm.h"

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

int64_t rounded_up(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

// The number of columns rounded up to whole cache lines.
int64_t whole_lines(int64_t columns, DType dtype) { return rounded_up(columns, 128 / size_of(dtype)); }

Rows allocate(Arena& arena, DType dtype, int64_t N, int64_t width, int64_t spare) {
  return Rows(arena.alloc(dtype, {N, width + spare})).columns(0, width);
}

bool has_spare_columns(const Rows& x) { return x.stride() > x.width; }

}  // namespace

float init_std_to_stream(const ModelConfig& config) {
  return 0.02f / std::sqrt(2.0f * static_cast<float>(config.layers));
}

Linear::Linear(ParamList& params, const ModelConfig& config, const std::vector<LinearSpec>& specs)
    : params_(&params), in_(specs.front().in) {
  for (const LinearSpec& spec : specs) {
    layers_.push_back({width_, spec.out});
    width_ += spec.out;
  }
  declare_weights(params, config, specs);
  declare_biases(params, specs);
  std::vector<AdaptedLayer> adapted;
  for (size_t i = 0; i < specs.size(); ++i)
    if (const auto found = config.adapters.find(specs[i].path); found != config.adapters.end())
      adapted.push_back({layers_[i].begin, specs[i].path, in_, specs[i].out, found->second});
  adapters_ = LayerAdapters(params, adapted);
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
  std::vector<ParamId> dense;
  std::vector<QuantizedParams> quantized;
  for (const LinearSpec& spec : specs) {
    const Init init = Init::normal(spec.init_std);
    if (const auto format = format_of(spec)) {
      quantized.emplace_back(params, spec.path, FourBitWeight{*format, spec.out, spec.in}, init);
      weights_.push_back(std::make_shared<QuantizedWeight>(std::vector{quantized.back()}));
    } else {
      dense.push_back(
          params.add({.name = spec.path + ".weight",
                      .shape = spec.transposed ? Shape{spec.in, spec.out} : Shape{spec.out, spec.in},
                      .init = init,
                      .joined = joins && !dense.empty()}));
      weights_.push_back(std::make_shared<DenseWeight>(params, std::vector{dense.back()}, spec.transposed));
    }
  }
  if (!joins) return;
  if (dense.empty())
    joined_ = std::make_shared<QuantizedWeight>(quantized);
  else
    joined_ = std::make_shared<DenseWeight>(params, dense, specs.front().transposed);
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

std::vector<Linear::Run> Linear::runs(bool as_one) const {
  if (as_one) return {{0, layers_.size()}};
  std::vector<Run> each;
  for (size_t i = 0; i < layers_.size(); ++i) each.push_back({i, i + 1});
  return each;
}

const Weight& Linear::weight(Run run) const {
  return run.end - run.begin > 1 ? *joined_ : *weights_[run.begin];
}

bool Linear::have_one_bias() const {
  return std::all_of(b_.begin(), b_.end(),
                     [&](ParamId id) { return id.index == b_.front().index || (*params_)[id].joined; });
}

std::span<const ParamId> Linear::biases(Run run) const {
  return std::span(b_).subspan(run.begin, run.end - run.begin);
}

Rows Linear::columns(const Rows& y, Run run) const {
  const LayerColumns &first = layers_[run.begin], &last = layers_[run.end - 1];
  return y.columns(first.begin, last.begin + last.size - first.begin);
}

// Products of rows whose parts are not whole accesses are slower than separate passes.
int64_t Linear::spare_columns(const LayerCall& c, bool pay) const {
  if (!c.stream.device().is_cuda() || adapters_.empty()) return 0;
  for (const int64_t columns : {in_, width_, adapters_.ranks()})
    if (columns * size_of(c.dtype) % kAccess != 0) return 0;
  for (const auto& w : weights_)
    if (!w->prefers_copy(c.dtype, pay)) return 0;
  return whole_lines(adapters_.ranks(), c.dtype);
}

// Spare columns of x save a pass over y, 2 N width elements, and cost a copy of w, 2 in width: from 2 in rows
// on, they save at least half. For spare columns of dy, swap in and width.
int64_t Linear::spare_of_x(const LayerCall& c, int64_t N) const { return spare_columns(c, N >= 2 * in_); }

// The gradient of a dropped input is not a product with a alone.
int64_t Linear::spare_of_y(const LayerCall& c, int64_t N) const {
  return adapters_.have_dropout() ? 0 : spare_columns(c, N >= 2 * width_);
}

Rows Linear::input(const LayerCall& c, Arena& arena, int64_t N, int64_t multiple) const {
  return allocate(arena, c.dtype, N, in_, multiple == 0 ? 0 : rounded_up(spare_of_x(c, N), multiple));
}

Rows Linear::output(const LayerCall& c, Arena& arena, int64_t N, int64_t multiple) const {
  return allocate(arena, c.dtype, N, width_, multiple == 0 ? 0 : rounded_up(spare_of_y(c, N), multiple));
}

// A copy of dy moves 2 * N * width elements, a pass over dx 2 * N * in elements.
Rows Linear::with_spare_columns(LayerCall& c, const Rows& dy, bool wants_dx) const {
  const int64_t spare = spare_of_y(c, dy.count());
  if (has_spare_columns(dy) || !wants_dx || spare == 0 || in_ < 2 * width_) return dy;
  const Rows wide = allocate(c.scratch, c.dtype, dy.count(), width_, spare);
  cast(c.stream, {.y = wide.values(), .x = dy.values(), .y_stride = wide.stride()});
  return wide;
}

void Linear::multiply(LayerCall& c, const ParamView& p, Run run, bool with_adapters,
                      const Product& product) const {
  if (!with_adapters) return weight(run).multiply(c, p, product);
  const auto layers = std::span(layers_).subspan(run.begin, run.end - run.begin);
  multiply_extended(c, p, weight(run), layers, adapters_, product);
}

void Linear::forward(LayerCall& c, const ParamView& p, const Rows& y, const Rows& x, const Tensor& addend,
                     const ProductEnd& end) {
  check(addend.empty() || addend.shape == y.of.shape, "a linear layer adds ", addend.shape, " to ",
        y.of.shape);
  prepare(c, p, x);
  const std::vector<Run> matrices = runs(are_one_matrix() && have_one_bias());
  const bool ends = matrices.size() == 1 && (adapters_.empty() || has_spare_columns(x));
  for (const Run run : matrices)
    multiply(c, p, run, has_spare_columns(x),
             {.c = columns(y, run),
              .a = x,
              .b = {},
              .bias = b_.empty() ? Tensor{} : p.joined(biases(run)),
              .addend = addend.empty() ? Rows() : columns(addend, run),
              .transpose_b = true,
              .end = ends ? end : ProductEnd()});
  adapters_.add_update(c, p, y);
  if (!ends) run(c.stream, end);
}

void Linear::prepare(LayerCall& c, const ParamView& p, const Rows& x) {
  adapters_.project(c, p, x, c.first_row);
}

void Linear::restore(LayerCall& c, const ParamView& p, const Rows& x) {
  if (has_spare_columns(x)) prepare(c, p, x);
}

void Linear::backward(LayerCall& c, const ParamView& p, const GradView& g, const Tensor& dx,
                      const Rows& dy_of_layer, const Rows& x, bool accumulate, const ProductEnd& end) const {
  const ArenaScope scope(c.scratch);
  const Rows dy = with_spare_columns(c, dy_of_layer, !dx.empty());
  const std::vector<Run> matrices = runs(are_one_matrix());
  for (const Run run : matrices) weight(run).backward(c, g, columns(dy, run), x);
  if (!b_.empty())
    for (const Run run : runs(have_one_bias()))
      if (const Tensor db = g.joined(biases(run)); !db.empty())
        bias_backward(c.stream, c.scratch,
                      {.db = db,
                       .dy = columns(dy, run).values(),
                       .accumulate = g.accumulates(biases(run)),
                       .dy_stride = dy.stride()});
  // Whether the last product adds the adapters' part of dx, from du in spare columns.
  const bool reads_du = has_spare_columns(dy) && !adapters_.have_dropout();
  if (reads_du) adapters_.backward(c, p, g, {}, dy, x, c.first_row);
  const bool ends = !dx.empty() && (adapters_.empty() || reads_du);
  if (!dx.empty())
    for (const Run run : matrices) {
      const bool is_last = run.end == layers_.size();
      multiply(c, p, run, reads_du && is_last,
               {.c = dx,
                .a = columns(dy, run),
                .b = {},
                .accumulate = accumulate || run.begin > 0,
                .end = ends && is_last ? end : ProductEnd()});
    }
  if (!reads_du) adapters_.backward(c, p, g, dx, dy, x, c.first_row);
  if (!ends) run(c.stream, end);
}

}  // namespace flatshard
