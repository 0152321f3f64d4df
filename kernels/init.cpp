#include "kernels/init.h"

#include <algorithm>

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/simd.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

// Size of a batch of random numbers, which is on the stack.
constexpr int64_t kBatch = 1024;

void generate(const InitParam& a, int64_t first, std::span<float> values) {
  switch (a.init.kind) {
    case Init::Kind::constant:
      std::fill(values.begin(), values.end(), a.init.value);
      return;
    case Init::Kind::normal:
      a.random.fill_normal(first, values);
      for (float& v : values) v *= a.init.value;
      return;
    case Init::Kind::uniform:
      a.random.fill_uniform(first, values);
      for (float& v : values) v = (2.0f * v - 1.0f) * a.init.value;
      return;
  }
}

template <class T>
void init(const InitParam& a) {
  parallel_blocks(a.y.size(), 16 * kBatch, [&](int64_t block_begin, int64_t block_end) {
    float values[kBatch];
    for (int64_t begin = block_begin; begin < block_end; begin += kBatch) {
      const int64_t count = std::min(kBatch, block_end - begin);
      generate(a, a.first + begin, {values, static_cast<size_t>(count)});
      T* y = a.y.as<T>() + begin;
      for_each_vector(count, [&](int64_t i, auto lanes) { store(y + i, load(values + i, lanes), lanes); });
    }
  });
}

}  // namespace
}  // namespace cpu

void init_param(Stream& stream, const InitParam& a) {
  check(is_float(a.y.dtype), "init_param: y is ", a.y.dtype, ", must be f32, bf16 or f16");
  check(a.first >= 0, "init_param: first is ", a.first, ", must not be negative");
  check(std::isfinite(a.init.value), "init_param: init.value is ", a.init.value, ", must be finite");
  if (a.y.empty() || plans(stream, "init_param", a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::init_param(stream, a);
  stream.run("init_param", [a] { visit_float(a.y.dtype, [&]<class T>() { cpu::init<T>(a); }); });
}

InitialValues random_values(uint64_t seed) {
  return [seed](Stream& stream, const ParamSpec& spec, int64_t first, const Tensor& y) {
    init_param(stream, {.y = y, .init = spec.init, .random = RandomStream(seed, spec.name), .first = first});
  };
}

double min_bytes(const InitParam& a) { return bytes_of(a.y); }
double flops(const InitParam& a) {  // counts the Box-Muller operations, without the random bits
  return a.init.kind == Init::Kind::normal ? 20.0 * static_cast<double>(a.y.size()) : 0.0;
}

}  // namespace flatshard
