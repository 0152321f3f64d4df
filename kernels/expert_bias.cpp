#include "kernels/expert_bias.h"

#include <algorithm>
#include <vector>

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/simd.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace {

using namespace simd;

void check_rows(const char* op, const Tensor& x, const Tensor& offsets, const Tensor& rows) {
  check(is_float(x.dtype) && x.shape.rank() == 2, op, ": rows are ", x.dtype, " ", x.shape,
        ", must be a matrix of floats");
  check(offsets.dtype == DType::i32 && offsets.size() >= 2, op, ": offsets are ", offsets.dtype, " ",
        offsets.shape, ", must be i32 (experts + 1)");
  check_elements(op, "rows", rows, DType::i32, x.shape[0]);
}

void check_bias(const char* op, const Tensor& bias, const Tensor& x, const Tensor& offsets) {
  check_elements(op, "bias", bias, x.dtype, (offsets.size() - 1) * x.shape[1]);
}

template <class T>
void add(const AddExpertBias& a) {
  const int64_t C = a.x.shape[1], E = a.offsets.size() - 1;
  const auto *const offsets = a.offsets.as<int32_t>(), *const rows = a.rows.as<int32_t>();
  parallel_blocks(E, 1, [&](int64_t first, int64_t last) {
    for (int64_t e = first; e < last; ++e)
      for (int64_t row = offsets[e]; row < offsets[e + 1]; ++row) {
        if (rows[row] < 0) continue;
        T* const x = a.x.as<T>() + row * C;
        const T* const bias = a.bias.as<T>() + e * C;
        for_each_vector(C, [&](int64_t i, auto lanes) {
          store(x + i, load(x + i, lanes) + load(bias + i, lanes), lanes);
        });
      }
  });
}

// The weight of a row: that of the choice of its token which is at this place.
float weight_of(const ExpertBiasBackward& a, int64_t row, int64_t token) {
  if (a.weights.empty()) return 1;
  const int64_t k = a.places.shape[1];
  const auto* const places = a.places.as<int32_t>() + token * k;
  const int64_t choice = std::find(places, places + k, static_cast<int32_t>(row)) - places;
  return a.weights.as<float>()[token * k + choice];
}

template <class T>
void sum_rows(const ExpertBiasBackward& a) {
  const int64_t C = a.dx.shape[1], E = a.offsets.size() - 1;
  const auto *const offsets = a.offsets.as<int32_t>(), *const rows = a.rows.as<int32_t>();
  parallel_blocks(E, 1, [&](int64_t first, int64_t last) {
    std::vector<float> sums(static_cast<size_t>(C));
    for (int64_t e = first; e < last; ++e) {
      std::fill(sums.begin(), sums.end(), 0.0f);
      for (int64_t row = offsets[e]; row < offsets[e + 1]; ++row) {
        if (rows[row] < 0) continue;
        const Floats weight = splat(weight_of(a, row, rows[row]));
        const T* const dx = a.dx.as<T>() + row * C;
        for_each_vector(C, [&](int64_t i, auto lanes) {
          float* const sum = sums.data() + i;
          store(sum, fma(weight, load(dx + i, lanes), load(sum, lanes)), lanes);
        });
      }
      float* const dbias = a.dbias.as<float>() + e * C;
      for (int64_t i = 0; i < C; ++i)
        dbias[i] = (a.accumulate ? dbias[i] : 0.0f) + sums[static_cast<size_t>(i)];
    }
  });
}

constexpr int64_t kElementsOfTask = 16384;

template <class T>
void add_to_weights(const ExpertBiasBackward& a) {
  const int64_t C = a.dx.shape[1];
  const auto *const places = a.places.as<int32_t>(), *const experts = a.experts.as<int32_t>();
  parallel_blocks(
      a.places.size(), std::max<int64_t>(1, kElementsOfTask / C), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          if (places[i] < 0) continue;
          const T *const dx = a.dx.as<T>() + places[i] * C, *const bias = a.bias.as<T>() + experts[i] * C;
          Floats dot{};
          for_each_vector(
              C, [&](int64_t c, auto lanes) { dot = fma(load(dx + c, lanes), load(bias + c, lanes), dot); });
          a.dweights.as<float>()[i] += sum(dot);
        }
      });
}

}  // namespace

void add_expert_bias(Stream& stream, const AddExpertBias& a) {
  check_rows("add_expert_bias", a.x, a.offsets, a.rows);
  check_bias("add_expert_bias", a.bias, a.x, a.offsets);
  if (a.x.empty() || plans(stream, "add_expert_bias", a, a.x)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::add_expert_bias(stream, a);
  stream.run("add_expert_bias", [a] { visit_float(a.x.dtype, [&]<class T>() { add<T>(a); }); });
}

void expert_bias_backward(Stream& stream, const ExpertBiasBackward& a) {
  constexpr char kOp[] = "expert_bias_backward";
  check_rows(kOp, a.dx, a.offsets, a.rows);
  if (!a.dbias.empty())
    check_elements(kOp, "dbias", a.dbias, DType::f32, (a.offsets.size() - 1) * a.dx.shape[1]);
  if (!a.dweights.empty()) {
    check_bias(kOp, a.bias, a.dx, a.offsets);
    check(a.places.shape.rank() == 2, kOp, ": places are ", a.places.shape, ", must be (tokens, choices)");
    check_elements(kOp, "places", a.places, DType::i32, a.dweights.size());
    check_elements(kOp, "experts", a.experts, DType::i32, a.dweights.size());
    check_elements(kOp, "weights", a.weights, DType::f32, a.dweights.size());
  }
  if (plans(stream, kOp, a, a.dx)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::expert_bias_backward(stream, a);
  stream.run(kOp, [a] {
    visit_float(a.dx.dtype, [&]<class T>() {
      if (!a.dbias.empty()) sum_rows<T>(a);
      if (!a.dweights.empty()) add_to_weights<T>(a);
    });
  });
}

double min_bytes(const AddExpertBias& a) { return bytes_of(a.x, a.x, a.bias, a.rows); }
double min_bytes(const ExpertBiasBackward& a) {
  return bytes_of(a.dbias, a.dweights, a.dx, a.bias, a.rows) + (a.dweights.empty() ? 0 : bytes_of(a.dx));
}
double flops(const AddExpertBias& a) { return static_cast<double>(a.x.size()); }
double flops(const ExpertBiasBackward& a) {
  return static_cast<double>((a.dweights.empty() ? 2 : 4) * a.dx.size());
}

}  // namespace flatshard
