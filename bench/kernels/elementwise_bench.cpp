// Cases of cast, add, scale, softcap and place, shared by tests and benchmark.

#include <array>
#include <cmath>

#include "bench/case.h"
#include "kernels/elementwise.h"

namespace flatshard::bench {
namespace {

constexpr float kFactor = 0.375f, kCap = 0.75f;

Case cast_case(DType from, DType to, int64_t n) {
  const std::string y = str("as_", to);
  const auto arguments = [=](const Tensors& t) -> Cast { return {.y = t[y], .x = t["x"]}; };
  return {.op = "cast",
          .shape = str(n, " from ", from),
          .dtype = to,
          .args = {{"x", from, {n}, Role::input}, {y, to, {n}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { cast(s, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference = [=](Values& v) { v[y] = v["x"]; }};
}

// Input and output are columns of wider rows.
Case cast_columns_case(DType from, DType to, int64_t rows, int64_t n) {
  constexpr int64_t kFrom = 8, kWider = 24;
  const auto arguments = [=](const Tensors& t) -> Cast {
    return {.y = packed_columns(t["as"], 0, {rows, n}),
            .x = packed_columns(t["x"], kFrom, {rows, n}),
            .y_stride = n + kFrom,
            .x_stride = n + kWider};
  };
  return {
      .op = "cast",
      .shape = str(rows, " x ", n, " packed, from ", from),
      .dtype = to,
      .args = {{"x", from, {rows, n + kWider}, Role::input}, {"as", to, {rows, n + kFrom}, Role::updated}},
      .run = [=](Stream& s, Arena&, const Tensors& t) { cast(s, arguments(t)); },
      .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
      .flops = [=](const Tensors& t) { return flops(arguments(t)); },
      .reference =
          [=](Values& v) {
            for (int64_t row = 0; row < rows; ++row)
              for (int64_t i = 0; i < n; ++i)
                v["as"][row * (n + kFrom) + i] = v["x"][row * (n + kWider) + kFrom + i];
          }};
}

Case add_case(DType dtype, int64_t n) {
  const auto arguments = [=](const Tensors& t) -> Add { return {.y = t["sum"], .a = t["a"], .b = t["b"]}; };
  return {.op = "add",
          .shape = str(n),
          .dtype = dtype,
          .args = {{"a", dtype, {n}, Role::input},
                   {"b", dtype, {n}, Role::input},
                   {"sum", dtype, {n}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { add(s, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                v["sum"] = v["a"];
                for (int64_t i = 0; i < n; ++i) v["sum"][i] += v["b"][i];
              }};
}

// In place, as in the residual stream: y is a.
Case add_in_place_case(DType dtype, int64_t n) {
  const auto arguments = [=](const Tensors& t) -> Add { return {.y = t["a"], .a = t["a"], .b = t["b"]}; };
  return {.op = "add",
          .shape = str(n, " in place"),
          .dtype = dtype,
          .args = {{"a", dtype, {n}, Role::updated}, {"b", dtype, {n}, Role::input}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { add(s, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                for (int64_t i = 0; i < n; ++i) v["a"][i] += v["b"][i];
              }};
}

// Adds a tensor times a factor, as each half of a block does to the residual stream.
Case add_scaled_case(DType dtype, int64_t n) {
  const auto arguments = [=](const Tensors& t) -> Add {
    return {.y = t["sum"], .a = t["a"], .b = t["b"], .factor = kFactor};
  };
  return {.op = "add",
          .shape = str(n, " with a factor"),
          .dtype = dtype,
          .args = {{"a", dtype, {n}, Role::input},
                   {"b", dtype, {n}, Role::input},
                   {"sum", dtype, {n}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { add(s, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                v["sum"] = v["a"];
                for (int64_t i = 0; i < n; ++i) v["sum"][i] += static_cast<double>(kFactor) * v["b"][i];
              }};
}

Case scale_case(DType dtype, int64_t n) {
  const auto arguments = [=](const Tensors& t) -> flatshard::Scale {
    return {.y = t["scaled"], .x = t["x"], .factor = kFactor};
  };
  return {.op = "scale",
          .shape = str(n),
          .dtype = dtype,
          .args = {{"x", dtype, {n}, Role::input}, {"scaled", dtype, {n}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { scale(s, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                v["scaled"] = v["x"];
                for (double& y : v["scaled"]) y *= static_cast<double>(kFactor);
              }};
}

Case softcap_case(DType dtype, int64_t n) {
  const auto arguments = [=](const Tensors& t) -> Softcap {
    return {.y = t["capped"], .x = t["x"], .cap = kCap};
  };
  return {.op = "softcap",
          .shape = str(n),
          .dtype = dtype,
          .args = {{"x", dtype, {n}, Role::input}, {"capped", dtype, {n}, Role::output}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { softcap(s, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                v["capped"] = v["x"];
                for (double& y : v["capped"]) y = kCap * std::tanh(y / kCap);
              }};
}

// The output is columns of wider rows.
Case place_case(DType dtype, int64_t rows, int64_t width, int64_t first, int64_t C) {
  constexpr int64_t kWider = 32;  // whole sectors
  const auto arguments = [=](const Tensors& t) -> Place {
    return {.y = packed_columns(t["placed"], kWider, {rows, width}),
            .x = t["x"],
            .first = first,
            .y_stride = kWider + width};
  };
  return {.op = "place",
          .shape = str(rows, " x ", C, " from ", first, " of ", width),
          .dtype = dtype,
          .args = {{"x", dtype, {rows, C}, Role::input},
                   {"placed", dtype, {rows, kWider + width}, Role::updated}},
          .run = [=](Stream& s, Arena&, const Tensors& t) { place(s, arguments(t)); },
          .min_bytes = [=](const Tensors& t) { return min_bytes(arguments(t)); },
          .flops = [=](const Tensors& t) { return flops(arguments(t)); },
          .reference =
              [=](Values& v) {
                for (int64_t row = 0; row < rows; ++row)
                  for (int64_t i = 0; i < width; ++i)
                    v["placed"][row * (kWider + width) + kWider + i] =
                        i >= first && i < first + C ? v["x"][row * C + i - first] : 0;
              }};
}

}  // namespace

std::vector<Case> elementwise_cases(Scale scale) {
  if (scale == Scale::bench || scale == Scale::vm) {
    const int64_t n = scale == Scale::bench ? int64_t{32} << 20 : 1 << 17;
    return {cast_case(DType::f32, DType::bf16, n),
            cast_case(DType::bf16, DType::f32, n),
            add_case(DType::f32, n),
            add_case(DType::bf16, n),
            add_in_place_case(DType::f32, n),
            add_in_place_case(DType::bf16, n),
            add_scaled_case(DType::bf16, n),
            scale_case(DType::f32, n),
            scale_case(DType::bf16, n),
            softcap_case(DType::f32, n),
            place_case(DType::bf16, n / 64, 32, 16, 16)};
  }
  const bool golden = scale == Scale::golden;
  std::vector<Case> cases;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    if (golden && dtype == DType::f16) continue;
    for (const int64_t n : golden ? std::vector<int64_t>{100} : std::vector<int64_t>{0, 1, 16, 53}) {
      for (const DType to : {DType::f32, DType::bf16, DType::f16}) cases.push_back(cast_case(dtype, to, n));
      if (!golden && n > 1)
        for (const DType to : {DType::f32, dtype}) cases.push_back(cast_columns_case(dtype, to, 5, n));
      cases.push_back(add_case(dtype, n));
      if (!golden) cases.push_back(add_in_place_case(dtype, n));
      if (!golden) cases.push_back(add_scaled_case(dtype, n));
      cases.push_back(scale_case(dtype, n));
      cases.push_back(softcap_case(dtype, n));
    }
    if (golden) continue;
    cases.push_back(add_case(dtype, 8205));  // enough for several blocks on every device
    for (const DType to : {DType::f32, dtype}) cases.push_back(cast_columns_case(dtype, to, 0, 5));
    cases.push_back(place_case(dtype, 0, 16, 0, 8));
    for (const auto& [width, first, C] :
         {std::array<int64_t, 3>{24, 8, 16}, {16, 0, 16}, {16, 0, 0}, {16, 16, 0}, {13, 4, 5}, {16, 3, 8}})
      cases.push_back(place_case(dtype, 5, width, first, C));
  }
  return cases;
}

}  // namespace flatshard::bench
