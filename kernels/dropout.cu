// Dropout on the GPU, with the same bits as on the CPU. Instruction issue limits it: the 4 bytes of an
// element take about 34 instructions, half of them for its random number, of a budget of 25 (flat.cuh). With
// 48 registers, an SM runs 1280 threads, with 40 KiB in flight.

#include "kernels/dropout.h"
#include "kernels/flat.cuh"
#include "kernels/random.cuh"

namespace flatshard::cuda {
namespace {

template <class T>
struct Mask {
  T* out;
  const T* in;
  PackedRows in_rows;
  RandomStream random;
  int64_t first;
  float p, scale;
  bool accumulate;

  template <int N>
  struct Inputs {
    Pack<T, N> in, out;
  };
  template <int N>
  __device__ Inputs<N> read(int64_t i) const {
    return {load<T, N>(in + in_rows.offset(i)), accumulate ? load<T, N>(out + i) : Pack<T, N>{}};
  }
  template <int N>
  __device__ void write(int64_t i, const Inputs<N>& inputs) const {
    Pack<T, N> result;
    for_each_random<N>(random, first + i, [&](int j, uint32_t bits) {
      const float factor = RandomStream::to_uniform(bits) >= p ? scale : 0.0f;
      const float value = __fmul_rn(to_float(inputs.in.element[j]), factor);  // rounded before the sum
      result.element[j] = from_float<T>(accumulate ? to_float(inputs.out.element[j]) + value : value);
    });
    store<T, N>(out + i, result);
  }
};

}  // namespace

void dropout(Stream& stream, const char* op_name, const Dropout& a) {
  visit_float(a.in.dtype, [&]<class T>() {
    const Mask<T> op{.out = a.out.as<T>(),
                     .in = a.in.as<T>(),
                     .in_rows = {a.in.shape[-1], a.in_stride},
                     .random = a.random,
                     .first = a.first,
                     .p = a.p,
                     .scale = 1.0f / (1.0f - a.p),
                     .accumulate = a.accumulate};
    const bool packs =
        a.in_stride == op.in_rows.width || (packable<T>(op.in_rows.width) && packable<T>(a.in_stride));
    launch_flat<kPackSize<T>>(stream, op_name, op, a.in.size(), packs && packable<T>(a.first, op.in, op.out));
  });
}

}  // namespace flatshard::cuda
