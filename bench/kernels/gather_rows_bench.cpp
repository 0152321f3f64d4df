// Cases of gather_rows and scatter_rows, shared by tests and benchmark.

#include "bench/case.h"
#include "kernels/gather_rows.h"
#include "kernels/packed.h"

namespace flatshard::bench {
namespace {

struct Sizes {
  int64_t N, rows, W;
  int64_t wider = 0;  // columns before the copied ones, in the rows of both sides
};

std::string name_of(const Sizes& s) {
  return str(s.N, " x ", s.W, " of ", s.rows, s.wider > 0 ? " packed" : "");
}

// Unique row numbers: 37 is a prime that divides no number of rows here. Small cases skip every fourth.
Arg index_of(const Sizes& s, Scale scale) {
  const bool skips = scale == Scale::test;
  return {"index", DType::i32, {s.N}, Role::constant, [=](int64_t i, double) {
            return skips && i % 4 == 1 ? -1.0 : static_cast<double>(37 * i % s.rows);
          }};
}

Tensor columns(const Tensor& packed, const Sizes& s) {
  return packed_columns(packed, s.wider, {packed.shape[0], s.W});
}

GatherRows gather(const Tensor& y, const Tensor& x, const Tensor& index, const Sizes& s) {
  return {
      .y = columns(y, s), .x = columns(x, s), .index = index, .y_stride = y.shape[1], .x_stride = x.shape[1]};
}

ScatterRows scatter(const Tensor& y, const Tensor& x, const Tensor& index, bool add, const Sizes& s) {
  return {.y = columns(y, s),
          .x = columns(x, s),
          .index = index,
          .add = add,
          .y_stride = y.shape[1],
          .x_stride = x.shape[1]};
}

// Calls visit(i, j) for each pair of elements: i of N rows, j of the table.
template <class Visit>
void for_each_pair(const std::vector<double>& index, const Sizes& s, Visit&& visit) {
  const int64_t width = s.wider + s.W;
  for (int64_t n = 0; n < s.N; ++n)
    for (int64_t c = s.wider; c < width && index[n] >= 0; ++c)
      visit(n * width + c, static_cast<int64_t>(index[n]) * width + c);
}

Case gather_case(DType dtype, const Sizes& s, Scale scale) {
  const int64_t width = s.wider + s.W;
  const auto arguments = [=](const Tensors& t) { return gather(t["gathered"], t["table"], t["index"], s); };
  return {.op = "gather_rows",
          .shape = name_of(s),
          .dtype = dtype,
          .args = {{"table", dtype, {s.rows, width}, Role::input},
                   index_of(s, scale),
                   {"gathered", dtype, {s.N, width}, s.wider > 0 ? Role::updated : Role::output}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) { gather_rows(stream, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                v["gathered"].resize(static_cast<size_t>(s.N * width));
                for (int64_t i = 0; i < s.N * width; ++i)
                  if (i % width >= s.wider) v["gathered"][i] = 0;
                for_each_pair(v["index"], s, [&](int64_t i, int64_t j) { v["gathered"][i] = v["table"][j]; });
              }};
}

Case scatter_case(DType dtype, const Sizes& s, Scale scale, bool add) {
  const int64_t width = s.wider + s.W;
  const std::string y = add ? "summed" : "scattered";
  const auto arguments = [=](const Tensors& t) { return scatter(t[y], t["x"], t["index"], add, s); };
  return {.op = "scatter_rows",
          .shape = name_of(s) + (add ? ", added" : ""),
          .dtype = dtype,
          .args = {{"x", dtype, {s.N, width}, Role::input},
                   index_of(s, scale),
                   {y, dtype, {s.rows, width}, Role::updated}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) { scatter_rows(stream, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                for_each_pair(v["index"], s,
                              [&](int64_t i, int64_t j) { v[y][j] = v["x"][i] + (add ? v[y][j] : 0); });
              }};
}

// The backward pass of a gather.
Case gather_gradient_case(DType dtype, const Sizes& s) {
  const auto arguments = [=](const Tensors& t) { return scatter(t["dx"], t["dy"], t["index"], true, s); };
  return {.op = "scatter_rows",
          .shape = name_of(s) + ", a gradient",
          .dtype = dtype,
          .args = {{"x", dtype, {s.rows, s.W}, Role::input},
                   index_of(s, Scale::test),
                   {"dy", dtype, {s.N, s.W}, Role::input},
                   {"dx", dtype, {s.rows, s.W}, Role::updated}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) { scatter_rows(stream, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                v["y"].assign(static_cast<size_t>(s.N * s.W), 0);
                for_each_pair(v["index"], s, [&](int64_t i, int64_t j) { v["y"][i] = v["x"][j]; });
              },
          .gradients = true};
}

// The backward pass of a scatter into zeros.
Case scatter_gradient_case(DType dtype, const Sizes& s) {
  const auto arguments = [=](const Tensors& t) { return gather(t["dx"], t["dy"], t["index"], s); };
  return {.op = "gather_rows",
          .shape = name_of(s) + ", a gradient",
          .dtype = dtype,
          .args = {{"x", dtype, {s.N, s.W}, Role::input},
                   index_of(s, Scale::test),
                   {"dy", dtype, {s.rows, s.W}, Role::input},
                   {"dx", dtype, {s.N, s.W}, Role::output}},
          .run = [=](Stream& stream, Arena&, const Tensors& t) { gather_rows(stream, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                v["y"].assign(static_cast<size_t>(s.rows * s.W), 0);
                for_each_pair(v["index"], s, [&](int64_t i, int64_t j) { v["y"][j] = v["x"][i]; });
              },
          .gradients = true};
}

constexpr int64_t kMostDifferentiated = 16;  // most rows; a numeric derivative takes the square of them

std::vector<Sizes> sizes(Scale scale) {
  if (scale == Scale::bench) return {{19600, 19600, 1152}, {2304, 8192, 4096}, {65536, 65536, 64}};
  if (scale == Scale::vm) return {{64, 64, 1152}, {128, 256, 512, 64}};
  if (scale == Scale::golden) return {{5, 9, 12}};
  return {{0, 5, 3}, {1, 1, 1}, {5, 7, 3}, {9, 16, 16}, {6, 6, 24, 8}, {4, 5, 13, 3}, {70, 90, 131}};
}

}  // namespace

std::vector<Case> gather_rows_cases(Scale scale) {
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (dtype == DType::f16 && scale != Scale::test) continue;
    for (const Sizes& s : sizes(scale)) {
      cases.push_back(gather_case(dtype, s, scale));
      for (const bool add : {false, true}) cases.push_back(scatter_case(dtype, s, scale, add));
      if (scale != Scale::test || s.wider > 0 || s.N > kMostDifferentiated) continue;
      cases.push_back(gather_gradient_case(dtype, s));
      cases.push_back(scatter_gradient_case(dtype, s));
    }
  }
  return cases;
}

}  // namespace flatshard::bench
