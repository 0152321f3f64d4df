// Cases of RoPE, shared by tests and benchmark: on a separate tensor, from a packed qkv matrix, and in place
// in such a matrix.

#include <cmath>
#include <vector>

#include "bench/case.h"
#include "kernels/rope.h"
#include "runtime/memory.h"

namespace flatshard::bench {
namespace {

constexpr double kTheta = 10000;

struct Sizes {
  int64_t T, H, D, P;
  RopeSections sections{};

  bool has_axes() const { return sections[0] > 0; }
  int64_t axis(int64_t pair) const {
    if (!has_axes() || pair < sections[0]) return 0;
    return pair < sections[0] + sections[1] || sections[2] == 0 ? 1 : 2;
  }
};

std::string shape_name(const Sizes& n, const char* layout) {
  const auto& [first, second, third] = n.sections;
  return str(n.T, " x ", n.H, " x ", n.D, layout,
             n.has_axes() ? str(" by ", first, " + ", second, " + ", third) : "");
}

// The angle of a pair of token t. A head has `half` pairs.
double angle_of(const std::vector<double>& positions, const Sizes& n, int64_t t, int64_t pair, int64_t half) {
  const double turn = std::pow(kTheta, -static_cast<double>(pair) / static_cast<double>(half));
  return positions[static_cast<size_t>(n.axis(pair) * n.T + t)] * turn;
}

Arg positions_arg(const Sizes& n) {
  const auto position = [P = n.P](int64_t, double unit) { return std::floor(unit * static_cast<double>(P)); };
  const int64_t axes = n.has_axes() ? n.axis(n.D) + 1 : 1;
  return {"positions", DType::i32, axes == 1 ? Shape{n.T} : Shape{axes, n.T}, Role::constant, position};
}

Arg table_arg(const Sizes& n) { return {"table", DType::f32, {n.P, n.D}, Role::saved}; }

void make_table(Stream& s, Arena&, const Tensors& t) {
  if (s.planning()) return;
  std::vector<float> host(static_cast<size_t>(t["table"].size()));
  const Tensor table = tensor_of(host.data(), t["table"].shape);
  rope_table(table, kTheta);
  copy(s, t["table"], table);
  s.sync();
}

// Rotates the first `width` elements of each head in place. Pairs are neighbors if `interleaved`.
struct Part {
  int64_t width;
  bool interleaved;
};

// Rotates x into y, whose tokens are y_stride apart; the rest of y is unchanged.
void formula(const std::vector<double>& x, std::vector<double>& y, const std::vector<double>& positions,
             const Sizes& n, int64_t x_stride, int64_t y_stride) {
  for (int64_t t = 0; t < n.T; ++t)
    for (int64_t h = 0; h < n.H; ++h)
      for (int64_t i = 0; i < n.D / 2; ++i) {
        const int64_t from = t * x_stride + h * n.D + i, to = t * y_stride + h * n.D + i;
        const double angle = angle_of(positions, n, t, i, n.D / 2);
        const double a = x[from], b = x[from + n.D / 2];
        y[to] = a * std::cos(angle) - b * std::sin(angle);
        y[to + n.D / 2] = b * std::cos(angle) + a * std::sin(angle);
      }
}

Case forward_case(DType dtype, const Sizes& n, int64_t x_stride) {
  const auto arguments = [=](const Tensors& t) -> RopeForward {
    return {.y = t["y"],
            .x = packed_columns(t["x"], 0, t["y"].shape),
            .positions = t["positions"],
            .table = t["table"],
            .x_stride = x_stride,
            .sections = n.sections};
  };
  return {.op = "rope_forward",
          .shape = shape_name(n, x_stride == n.H * n.D ? "" : " from packed"),
          .dtype = dtype,
          .args = {{"x", dtype, {n.T, x_stride}, Role::input},
                   positions_arg(n),
                   table_arg(n),
                   {"y", dtype, {n.T, n.H, n.D}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { rope_forward(s, arguments(t)); },
          .prepare = make_table,
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                v["y"].assign(n.T * n.H * n.D, 0);
                formula(v["x"], v["y"], v["positions"], n, x_stride, n.H * n.D);
              }};
}

// Rotates a part of each head in place.
Case part_case(DType dtype, const Sizes& n, int64_t stride, const Part& part) {
  const auto arguments = [=](const Tensors& t) -> RopeForward {
    const Tensor heads = packed_columns(t["qkv"], 0, {n.T, n.H, n.D});
    return {.y = heads,
            .x = heads,
            .positions = t["positions"],
            .table = t["table"],
            .y_stride = stride,
            .x_stride = stride,
            .interleaved = part.interleaved,
            .sections = n.sections};
  };
  const int64_t R = part.width;
  return {.op = "rope_forward",
          .shape = shape_name(n, "") + str(", ", R, part.interleaved ? " in pairs" : " in halves"),
          .dtype = dtype,
          .args = {{"qkv", dtype, {n.T, stride}, Role::updated},
                   positions_arg(n),
                   {"table", DType::f32, {n.P, R}, Role::saved}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { rope_forward(s, arguments(t)); },
          .prepare = make_table,
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                std::vector<double>& x = v["qkv"];
                for (int64_t t = 0; t < n.T; ++t)
                  for (int64_t h = 0; h < n.H; ++h)
                    for (int64_t k = 0; k < R / 2; ++k) {
                      const int64_t head = t * stride + h * n.D;
                      double& a = x[head + (part.interleaved ? 2 * k : k)];
                      double& b = x[head + (part.interleaved ? 2 * k + 1 : k + R / 2)];
                      const double angle = angle_of(v["positions"], n, t, k, R / 2);
                      const double before = a;
                      a = before * std::cos(angle) - b * std::sin(angle);
                      b = b * std::cos(angle) + before * std::sin(angle);
                    }
              }};
}

// The heads of q and k, rotated in place in a matrix (T, stride).
Case in_place_case(DType dtype, const Sizes& n, int64_t stride) {
  const auto arguments = [=](const Tensors& t) -> RopeForward {
    const Tensor heads = packed_columns(t["qkv"], 0, {n.T, n.H, n.D});
    return {.y = heads,
            .x = heads,
            .positions = t["positions"],
            .table = t["table"],
            .y_stride = stride,
            .x_stride = stride,
            .sections = n.sections};
  };
  return {.op = "rope_forward",
          .shape = shape_name(n, " in packed"),
          .dtype = dtype,
          .args = {{"qkv", dtype, {n.T, stride}, Role::updated}, positions_arg(n), table_arg(n)},
          .run = [=](Stream& s, Arena&, const Tensors& t) { rope_forward(s, arguments(t)); },
          .prepare = make_table,
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                const std::vector<double> before = v["qkv"];
                formula(before, v["qkv"], v["positions"], n, stride, stride);
              }};
}

Case backward_case(DType dtype, const Sizes& n, int64_t dy_stride) {
  const auto arguments = [=](const Tensors& t) -> RopeBackward {
    return {.dx = t["dx"],
            .dy = packed_columns(t["dy"], 0, t["dx"].shape),
            .positions = t["positions"],
            .table = t["table"],
            .dy_stride = dy_stride,
            .sections = n.sections};
  };
  return {.op = "rope_backward",
          .shape = shape_name(n, dy_stride == n.H * n.D ? "" : " from packed"),
          .dtype = dtype,
          .args = {{"x", dtype, {n.T, n.H, n.D}, Role::input},
                   positions_arg(n),
                   table_arg(n),
                   {"dy", dtype, {n.T, dy_stride}, Role::input},
                   {"dx", dtype, {n.T, n.H, n.D}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { rope_backward(s, arguments(t)); },
          .prepare = make_table,
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                v["y"].assign(n.T * dy_stride, 0);
                formula(v["x"], v["y"], v["positions"], n, n.H * n.D, dy_stride);
              },
          .gradients = true};
}

}  // namespace

std::vector<Case> rope_cases(Scale scale) {
  std::vector<Case> cases;
  if (scale == Scale::bench || scale == Scale::vm) {
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Sizes n = scale == Scale::bench ? Sizes{8192, 32, 128, 4096} : Sizes{32, 32, 128, 16};
      cases.push_back(forward_case(dtype, n, n.H * n.D));
      cases.push_back(in_place_case(dtype, n, (n.H + 8) * n.D));
      cases.push_back(part_case(dtype, n, (n.H + 8) * n.D, {n.D / 2, true}));
      cases.push_back(backward_case(dtype, n, n.H * n.D));
      const Sizes axes{n.T, n.H, n.D, n.P, {16, 24, 24}};
      cases.push_back(in_place_case(dtype, axes, (n.H + 8) * n.D));
    }
    return cases;
  }
  if (scale == Scale::golden) {
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Sizes& n : {Sizes{5, 2, 24, 40}, {5, 2, 24, 40, {3, 4, 5}}}) {
        cases.push_back(forward_case(dtype, n, n.H * n.D));
        cases.push_back(backward_case(dtype, n, n.H * n.D));
      }
    return cases;
  }
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const Sizes& n : {Sizes{0, 2, 32, 1},
                           {1, 1, 2, 1},
                           {3, 2, 32, 20},
                           {4, 1, 6, 30},
                           {2, 3, 34, 9},
                           {4, 2, 24, 9, {3, 4, 5}},
                           {3, 2, 64, 9, {8, 12, 12}},
                           {3, 1, 80, 9, {20, 20}}}) {
      const int64_t packed = (n.H + 1) * n.D;
      cases.push_back(forward_case(dtype, n, n.H * n.D));
      cases.push_back(forward_case(dtype, n, packed));
      cases.push_back(in_place_case(dtype, n, packed));
      cases.push_back(backward_case(dtype, n, n.H * n.D));
      cases.push_back(backward_case(dtype, n, packed));
      for (const int64_t width : {n.D, n.D / 4 * 2})
        for (const bool interleaved : {false, true})
          if (width == n.D || (width > 0 && !n.has_axes()))
            cases.push_back(part_case(dtype, n, packed, {width, interleaved}));
    }
  return cases;
}

}  // namespace flatshard::bench
