#include "kernels/expert_rows.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "build_config.h"
#include "kernels/grouped_product.h"
#include "kernels/op.h"
#include "kernels/simd_math.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

using namespace simd;

void check_places(const char* op, const Tensor& places, const Tensor& weights) {
  check(places.dtype == DType::i32 && places.shape.rank() == 2, op, ": places are ", places.dtype, " ",
        places.shape, ", must be i32 (tokens, choices)");
  if (!weights.empty()) check_elements(op, "weights", weights, DType::f32, places.size());
}

int64_t whole_segments(int64_t rows) { return (rows + kSegmentRows - 1) / kSegmentRows * kSegmentRows; }

// Sorts the choices by expert, and those of an expert by token.
void sort(const ExpertRows& a) {
  const int64_t E = a.offsets.size() - 1, k = a.experts.shape[1];
  const auto* const experts = a.experts.as<int32_t>();
  std::vector<int64_t> counts(static_cast<size_t>(E)), next(static_cast<size_t>(E));
  for (int64_t i = 0; i < a.experts.size(); ++i)
    if (experts[i] >= 0) ++counts[static_cast<size_t>(experts[i])];
  auto* const offsets = a.offsets.as<int32_t>();
  int64_t begin = 0;
  for (int64_t e = 0; e < E; ++e) {
    next[static_cast<size_t>(e)] = begin;
    offsets[e] = static_cast<int32_t>(begin);
    begin += whole_segments(counts[static_cast<size_t>(e)]);
    for (const Tensor& sums : {a.counts, a.step_counts})
      if (!sums.empty()) sums.as<int32_t>()[e] += static_cast<int32_t>(counts[static_cast<size_t>(e)]);
  }
  offsets[E] = static_cast<int32_t>(begin);
  std::fill_n(a.rows.as<int32_t>(), a.rows.size(), -1);
  for (int64_t i = 0; i < a.experts.size(); ++i) {
    const int64_t row = experts[i] < 0 ? -1 : next[static_cast<size_t>(experts[i])]++;
    if (row >= 0) a.rows.as<int32_t>()[row] = static_cast<int32_t>(i / k);
    a.places.as<int32_t>()[i] = static_cast<int32_t>(row);
  }
}

void take_part(const ExpertPart& a) {
  const int64_t n = a.offsets.size() - 1;
  const int32_t* const of_all = a.all_offsets.as<int32_t>() + a.first;
  const int32_t begin = of_all[0], count = of_all[n] - begin;
  for (int64_t e = 0; e <= n; ++e) a.offsets.as<int32_t>()[e] = of_all[e] - begin;
  for (int32_t row = 0; row < a.rows.size(); ++row) {
    const int32_t place = row < count ? begin + row : -1,
                  token = row < count ? a.all_rows.as<int32_t>()[place] : -1;
    int64_t choice = token < 0 ? -1 : token * a.all_places.shape[1];
    while (choice >= 0 && a.all_places.as<int32_t>()[choice] != place) ++choice;
    a.places.as<int32_t>()[row] = place;
    a.rows.as<int32_t>()[row] = token;
    a.choices.as<int32_t>()[row] = static_cast<int32_t>(choice);
  }
}

// The tokens that one task takes.
int64_t tokens_of_task(int64_t C) { return std::max<int64_t>(1, 16384 / C); }

template <class T>
void combine(const CombineRows& a) {
  const int64_t C = a.y.shape[1], k = a.places.shape[1];
  parallel_blocks(a.y.shape[0], tokens_of_task(C), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t* const places = a.places.as<int32_t>() + t * k;
      const float* const weights = a.weights.empty() ? nullptr : a.weights.as<float>() + t * k;
      const T* const addend = a.addend.empty() ? nullptr : a.addend.as<T>() + t * C;
      for_each_vector(C, [&](int64_t i, auto lanes) {
        Floats sum{};
        for (int64_t j = 0; j < k; ++j) {
          if (places[j] < 0) continue;
          const Floats x = load(a.x.as<T>() + places[j] * C + i, lanes);
          sum = weights ? fma(splat(weights[j]), x, sum) : sum + x;
        }
        store(a.y.as<T>() + t * C + i, addend ? load(addend + i, lanes) + sum : sum, lanes);
      });
    }
  });
}

template <class T>
void weigh(const WeighRows& a) {
  const int64_t F = a.a.shape[1];
  parallel_blocks(a.weights.size(), tokens_of_task(F), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = a.places.empty() ? i : a.places.as<int32_t>()[i];
      if (row < 0) {
        a.dweights.as<float>()[i] = 0;
        continue;
      }
      T *const da = a.da.as<T>() + row * F, *const unit = a.a.as<T>() + row * F;
      const float weight = a.weights.as<float>()[i];
      Floats dot{};
      for_each_vector(F, [&](int64_t f, auto lanes) {
        const Floats gradient = load(da + f, lanes), value = load(unit + f, lanes);
        dot = fma(gradient, value, dot);
        store(da + f, gradient * weight, lanes);
        store(unit + f, value * weight, lanes);
      });
      a.dweights.as<float>()[i] = sum(dot);
    }
  });
}

float gate_of(const Tensor& gate, int64_t t) { return sigmoid(splat(gate.as<float>()[t]))[0]; }

template <class T>
void gate_forward(const GateRowsForward& a) {
  const int64_t C = a.y.shape[1];
  parallel_blocks(a.y.shape[0], tokens_of_task(C), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const Floats share = splat(gate_of(a.gate, t));
      const T* const addend = a.addend.empty() ? nullptr : a.addend.as<T>() + t * C;
      for_each_vector(C, [&](int64_t i, auto lanes) {
        const Floats x = load(a.x.as<T>() + t * C + i, lanes);
        store(a.y.as<T>() + t * C + i, addend ? fma(share, x, load(addend + i, lanes)) : share * x, lanes);
      });
    }
  });
}

template <class T>
void gate_backward(const GateRowsBackward& a) {
  const int64_t C = a.dx.shape[1];
  parallel_blocks(a.dx.shape[0], tokens_of_task(C), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float share = gate_of(a.gate, t);
      Floats dot{};
      for_each_vector(C, [&](int64_t i, auto lanes) {
        const Floats dy = load(a.dy.as<T>() + t * C + i, lanes);
        dot = fma(dy, load(a.x.as<T>() + t * C + i, lanes), dot);
        store(a.dx.as<T>() + t * C + i, dy * share, lanes);
      });
      a.dgate.as<float>()[t] = sum(dot) * (share * (1 - share));
    }
  });
}

}  // namespace

int64_t expert_row_count(int64_t choices, int64_t experts) {
  return (choices + (kSegmentRows - 1) * experts) / kSegmentRows * kSegmentRows;
}

void expert_rows(Stream& stream, const ExpertRows& a) {
  const int64_t E = a.offsets.size() - 1;
  check(a.experts.dtype == DType::i32 && a.experts.shape.rank() == 2, "expert_rows: experts are ",
        a.experts.dtype, " ", a.experts.shape, ", must be i32 (tokens, choices)");
  check(a.offsets.dtype == DType::i32 && E >= 1, "expert_rows: offsets are ", a.offsets.dtype, " ",
        a.offsets.shape, ", must be i32 (experts + 1)");
  check_elements("expert_rows", "rows", a.rows, DType::i32, expert_row_count(a.experts.size(), E));
  check_elements("expert_rows", "places", a.places, DType::i32, a.experts.size());
  if (!a.counts.empty()) check_elements("expert_rows", "counts", a.counts, DType::i32, E);
  if (!a.step_counts.empty()) check_elements("expert_rows", "step_counts", a.step_counts, DType::i32, E);
  if (plans(stream, "expert_rows", a, a.experts)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::expert_rows(stream, a);
  stream.run("expert_rows", [a] { sort(a); });
}

void expert_part(Stream& stream, const ExpertPart& a) {
  const int64_t n = a.offsets.size() - 1, E = a.all_offsets.size() - 1;
  check(a.offsets.dtype == DType::i32 && a.all_offsets.dtype == DType::i32 && n >= 1 && a.first >= 0 &&
            a.first + n <= E,
        "expert_part: offsets are ", a.offsets.dtype, " ", a.offsets.shape, " from expert ", a.first,
        ", must be i32 of some of ", E, " experts");
  if (!a.rows.empty()) {
    check_places("expert_part", a.all_places, {});
    check_elements("expert_part", "all_rows", a.all_rows, DType::i32,
                   expert_row_count(a.all_places.size(), E));
    for (const auto& [name, t] : {std::pair{"places", a.places}, {"rows", a.rows}, {"choices", a.choices}})
      check_elements("expert_part", name, t, DType::i32, a.rows.size());
  }
  if (plans(stream, "expert_part", a, a.offsets)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::expert_part(stream, a);
  stream.run("expert_part", [a] { take_part(a); });
}

void combine_rows(Stream& stream, const CombineRows& a) {
  check_places("combine_rows", a.places, a.weights);
  check(a.y.shape.rank() == 2 && a.x.shape.rank() == 2 && a.y.shape[1] == a.x.shape[1] &&
            a.y.shape[0] == a.places.shape[0] && a.x.dtype == a.y.dtype,
        "combine_rows: y is ", a.y.dtype, " ", a.y.shape, ", x is ", a.x.dtype, " ", a.x.shape, " for ",
        a.places.shape[0], " tokens");
  if (!a.addend.empty()) check_like("combine_rows", "addend", a.addend, "y", a.y);
  if (a.y.empty() || plans(stream, "combine_rows", a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::combine_rows(stream, a);
  stream.run("combine_rows", [a] { visit_float(a.y.dtype, [&]<class T>() { combine<T>(a); }); });
}

void weigh_rows(Stream& stream, const WeighRows& a) {
  if (!a.places.empty()) check_places("weigh_rows", a.places, a.weights);
  check_like("weigh_rows", "da", a.da, "a", a.a);
  const int64_t choices = a.places.empty() ? a.a.shape[0] : a.places.size();
  check_elements("weigh_rows", "weights", a.weights, DType::f32, choices);
  check_elements("weigh_rows", "dweights", a.dweights, DType::f32, choices);
  if (choices == 0 || plans(stream, "weigh_rows", a, a.a)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::weigh_rows(stream, a);
  stream.run("weigh_rows", [a] { visit_float(a.a.dtype, [&]<class T>() { weigh<T>(a); }); });
}

void gate_rows_forward(Stream& stream, const GateRowsForward& a) {
  check_like("gate_rows_forward", "x", a.x, "y", a.y);
  if (!a.addend.empty()) check_like("gate_rows_forward", "addend", a.addend, "y", a.y);
  check_each("gate_rows_forward", "gate", a.gate, DType::f32, a.y.shape[0], "tokens");
  if (a.y.empty() || plans(stream, "gate_rows_forward", a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::gate_rows_forward(stream, a);
  stream.run("gate_rows_forward", [a] { visit_float(a.y.dtype, [&]<class T>() { gate_forward<T>(a); }); });
}

void gate_rows_backward(Stream& stream, const GateRowsBackward& a) {
  check_like("gate_rows_backward", "dy", a.dy, "dx", a.dx);
  check_like("gate_rows_backward", "x", a.x, "dx", a.dx);
  for (const auto& [name, t] : {std::pair{"gate", a.gate}, {"dgate", a.dgate}})
    check_each("gate_rows_backward", name, t, DType::f32, a.dx.shape[0], "tokens");
  if (a.dx.empty() || plans(stream, "gate_rows_backward", a, a.dx)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::gate_rows_backward(stream, a);
  stream.run("gate_rows_backward", [a] { visit_float(a.dx.dtype, [&]<class T>() { gate_backward<T>(a); }); });
}

double min_bytes(const ExpertRows& a) { return bytes_of(a.offsets, a.rows, a.places, a.experts); }
double min_bytes(const ExpertPart& a) {
  return bytes_of(a.offsets, a.places, a.rows, a.choices) + 2 * bytes_of(a.rows);
}
double min_bytes(const CombineRows& a) {
  return bytes_of(a.y, a.places, a.weights, a.addend) +
         static_cast<double>(a.places.size() * a.y.shape[1] * size_of(a.x.dtype));
}
double min_bytes(const WeighRows& a) {
  return bytes_of(a.dweights, a.places, a.weights) +
         static_cast<double>(4 * a.weights.size() * a.a.shape[1] * size_of(a.a.dtype));
}
double flops(const ExpertRows& a) { return static_cast<double>(a.experts.size()); }
double flops(const ExpertPart& a) { return static_cast<double>(a.rows.size()); }
double flops(const CombineRows& a) { return static_cast<double>(2 * a.places.size() * a.y.shape[1]); }
double flops(const WeighRows& a) { return static_cast<double>(4 * a.weights.size() * a.a.shape[1]); }

double min_bytes(const GateRowsForward& a) { return bytes_of(a.y, a.x, a.gate, a.addend); }
double min_bytes(const GateRowsBackward& a) { return bytes_of(a.dx, a.dgate, a.dy, a.x, a.gate); }
double flops(const GateRowsForward& a) { return static_cast<double>(2 * a.y.size()); }
double flops(const GateRowsBackward& a) { return static_cast<double>(3 * a.dx.size()); }

}  // namespace flatshard
