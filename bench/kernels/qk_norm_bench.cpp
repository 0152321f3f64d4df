// Cases of the norm and rotation of q and k, on the heads of a packed qkv matrix, shared by tests and
// benchmark.

#include <cmath>
#include <utility>

#include "bench/case.h"
#include "kernels/qk_norm.h"
#include "kernels/rope.h"

namespace flatshard::bench {
namespace {

constexpr double kTheta = 10000;
constexpr float kEps = 1e-5f;

struct Sizes {
  int64_t T, Hq, Hkv, D;
  bool all_heads = false;  // one norm over all heads of q, and one over all heads of k
  bool rotates = true, gemma = false;

  int64_t P() const { return T + 3; }
  int64_t heads() const { return Hq + Hkv; }
  int64_t packed() const { return (Hq + 2 * Hkv) * D; }
  int64_t rows() const { return all_heads ? 2 : heads(); }
  int64_t q_width() const { return all_heads ? Hq * D : D; }
  int64_t k_width() const { return all_heads ? Hkv * D : D; }
  std::string name() const {
    return str(T, " x ", Hq, "+", Hkv, " x ", D, all_heads ? " all heads" : "", rotates ? "" : " unrotated",
               gemma ? " gemma" : "");
  }
};

// Computes y from the first heads of x, whose tokens are packed() apart. Numeric gradients call this for
// every element of the inputs, so each rotation is computed once for all heads.
void formula(Values& v, const Sizes& n) {
  const std::vector<double>&x = v["x"], &wq = v["wq"], &wk = v["wk"], &positions = v["positions"];
  std::vector<double>&y = v["y"], &rstds = v["rstd"];
  y.assign(n.T * n.heads() * n.D, 0);
  rstds.assign(n.T * n.rows(), 0);
  std::vector<double> normed(n.heads() * n.D), cosines(n.D / 2, 1), sines(n.D / 2, 0);
  for (int64_t t = 0; t < n.T; ++t) {
    int64_t column = 0;
    for (int64_t row = 0; row < n.rows(); ++row) {
      const bool is_q = row < (n.all_heads ? 1 : n.Hq);
      const int64_t width = is_q ? n.q_width() : n.k_width();
      const std::vector<double>& w = is_q ? wq : wk;
      const double* from = &x[t * n.packed() + column];
      double squares = 0;
      for (int64_t i = 0; i < width; ++i) squares += from[i] * from[i];
      const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + kEps);
      rstds[t * n.rows() + row] = rstd;
      for (int64_t i = 0; i < width; ++i) normed[column + i] = from[i] * rstd * (w[i] + (n.gemma ? 1 : 0));
      column += width;
    }
    for (int64_t i = 0; n.rotates && i < n.D / 2; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(n.D);
      const double angle = positions[t] * std::pow(kTheta, exponent);
      cosines[i] = std::cos(angle);
      sines[i] = std::sin(angle);
    }
    for (int64_t h = 0; h < n.heads(); ++h)
      for (int64_t i = 0; i < n.D / 2; ++i) {
        const double a = normed[h * n.D + i], b = normed[h * n.D + i + n.D / 2];
        double* to = &y[(t * n.heads() + h) * n.D + i];
        to[0] = a * cosines[i] - b * sines[i];
        to[n.D / 2] = b * cosines[i] + a * sines[i];
      }
  }
}

void make_table(Stream& s, const Tensors& t) {
  if (s.planning() || !t.has("table")) return;
  std::vector<float> host(static_cast<size_t>(t["table"].size()));
  const Tensor table = tensor_of(host.data(), t["table"].shape);
  rope_table(table, kTheta);
  copy(s, t["table"], table);
  s.sync();
}

QkNormForward forward_args(const Tensors& t, const Sizes& n, const Tensor& y) {
  return {.y = y,
          .rstd = t["rstd"],
          .x = packed_columns(t["x"], 0, {n.T, n.heads(), n.D}),
          .wq = t["wq"],
          .wk = t["wk"],
          .positions = n.rotates ? t["positions"] : Tensor{},
          .table = n.rotates ? t["table"] : Tensor{},
          .x_stride = n.packed(),
          .query_heads = n.Hq,
          .eps = kEps,
          .offset = n.gemma ? 1.0f : 0.0f,
          .round_xhat = !n.gemma};
}

// dy is a tensor of its own, dx is in a packed matrix.
QkNormBackward backward_args(const Tensors& t, const Sizes& n, bool accumulate) {
  const Shape heads{n.T, n.heads(), n.D};
  return {.dx = packed_columns(t["dx"], 0, heads),
          .dwq = t.has("dwq") ? t["dwq"] : Tensor{},
          .dwk = t.has("dwk") ? t["dwk"] : Tensor{},
          .dy = t["dy"],
          .x = packed_columns(t["x"], 0, heads),
          .wq = t["wq"],
          .wk = t["wk"],
          .rstd = t["rstd"],
          .positions = n.rotates ? t["positions"] : Tensor{},
          .table = n.rotates ? t["table"] : Tensor{},
          .dx_stride = n.packed(),
          .x_stride = n.packed(),
          .query_heads = n.Hq,
          .offset = n.gemma ? 1.0f : 0.0f,
          .round_xhat = !n.gemma,
          .accumulate = accumulate};
}

std::vector<Arg> inputs(DType dtype, const Sizes& n, DType w) {
  const auto position = [P = n.P()](int64_t, double unit) {
    return std::floor(unit * static_cast<double>(P));
  };
  std::vector<Arg> args{{"x", dtype, {n.T, n.packed()}, Role::input},
                        {"wq", w, {n.q_width()}, Role::input},
                        {"wk", w, {n.k_width()}, Role::input}};
  if (n.rotates) args.push_back({"positions", DType::i32, {n.T}, Role::constant, position});
  if (n.rotates) args.push_back({"table", DType::f32, {n.P(), n.D}, Role::saved});
  return args;
}

Case forward_case(DType dtype, const Sizes& n, DType w) {
  std::vector<Arg> args = inputs(dtype, n, w);
  args.push_back({"y", dtype, {n.T, n.heads(), n.D}, Role::output});
  args.push_back({"rstd", DType::f32, {n.T, n.rows()}, Role::output});
  return {.op = "qk_norm_forward",
          .shape = str(n.name(), w == dtype ? "" : " w f32"),
          .dtype = dtype,
          .args = std::move(args),
          .run = [=](Stream& s, Arena&, const Tensors& t) { qk_norm_forward(s, forward_args(t, n, t["y"])); },
          .prepare = [](Stream& s, Arena&, const Tensors& t) { make_table(s, t); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(forward_args(t, n, t["y"])); },
          .flops = [=](const Tensors& t) { return flops(forward_args(t, n, t["y"])); },
          .reference = [=](Values& v) { formula(v, n); }};
}

// The gradients of w are omitted if they are frozen.
Case backward_case(DType dtype, const Sizes& n, DType w, bool frozen = false, bool accumulate = true) {
  const Role sums = accumulate ? Role::updated : Role::output;
  std::vector<Arg> args = inputs(dtype, n, w);
  args.push_back({"rstd", DType::f32, {n.T, n.rows()}, Role::saved});
  args.push_back({"dy", dtype, {n.T, n.heads(), n.D}, Role::input});
  args.push_back({"dx", dtype, {n.T, n.packed()}, Role::updated, [](int64_t, double) { return 0.0; }});
  if (!frozen) args.push_back({"dwq", DType::f32, {n.q_width()}, sums});
  if (!frozen) args.push_back({"dwk", DType::f32, {n.k_width()}, sums});
  return {
      .op = "qk_norm_backward",
      .shape = str(n.name(), frozen ? " frozen" : "", accumulate ? "" : " dw=", w == dtype ? "" : " w f32"),
      .dtype = dtype,
      .args = std::move(args),
      .run = [=](Stream& s, Arena& scratch,
                 const Tensors& t) { qk_norm_backward(s, scratch, backward_args(t, n, accumulate)); },
      .prepare =
          [=](Stream& s, Arena& scratch, const Tensors& t) {
            make_table(s, t);
            const ArenaScope scope(scratch);
            const Tensor y = scratch.alloc(dtype, {n.T, n.heads(), n.D});
            qk_norm_forward(s, forward_args(t, n, y));
          },
      .min_bytes = [=](const Tensors& t) { return min_bytes(backward_args(t, n, accumulate)); },
      .flops = [=](const Tensors& t) { return flops(backward_args(t, n, accumulate)); },
      .reference = [=](Values& v) { formula(v, n); },
      .gradients = true};
}

}  // namespace

std::vector<Case> qk_norm_cases(Scale scale) {
  std::vector<Case> cases;
  if (scale == Scale::golden) return cases;  // rmsnorm and rope have golden files
  if (scale == Scale::bench || scale == Scale::vm) {
    const int64_t T = scale == Scale::bench ? 8192 : 128;
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Sizes& n : {Sizes{T, 16, 8, 128}, {T / 4, 32, 32, 128, true}}) {
        cases.push_back(forward_case(dtype, n, dtype));
        cases.push_back(backward_case(dtype, n, dtype));
      }
    return cases;
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Sizes& n : {Sizes{0, 2, 1, 6},
                           {1, 1, 1, 2},
                           {5, 4, 2, 16},
                           {3, 3, 1, 34},
                           {67, 2, 1, 6},
                           {4, 4, 2, 32, true},
                           {1, 5, 5, 256, true},
                           {3, 2, 2, 64, false, false},
                           {2, 2, 1, 256, false, true, true}}) {
      cases.push_back(forward_case(dtype, n, dtype));
      for (const bool frozen : {false, true}) cases.push_back(backward_case(dtype, n, dtype, frozen));
      cases.push_back(backward_case(dtype, n, dtype, false, false));
      if (dtype == DType::f32) continue;
      cases.push_back(forward_case(dtype, n, DType::f32));
      cases.push_back(backward_case(dtype, n, DType::f32, true));
    }
  return cases;
}

}  // namespace flatshard::bench
