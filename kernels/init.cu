// Parameter initialization on the GPU, with the same bits as on the CPU. It runs once.
//
// Instruction issue limits it: 29 instructions for a uniform number and 50 for a normal one, of a budget of
// 12 for the 2 bytes of a bf16 (flat.cuh). With at most 46 registers, an SM runs 1280 threads.

#include "kernels/flat.cuh"
#include "kernels/init.h"
#include "kernels/random.cuh"

namespace flatshard::cuda {
namespace {

// Each kind of distribution has its own kernel, without branches.
template <class T, Init::Kind kKind>
struct MakeValues {
  T* y;
  float value;
  RandomStream random;
  int64_t first;

  struct Nothing {};
  template <int N>
  __device__ Nothing read(int64_t) const {
    return {};
  }
  template <int N>
  __device__ void write(int64_t i, Nothing) const {
    Pack<T, N> pack;
    if constexpr (kKind == Init::Kind::constant) {
      for (int j = 0; j < N; ++j) pack.element[j] = from_float<T>(value);
    } else if constexpr (kKind == Init::Kind::uniform) {
      for_each_random<N>(random, first + i, [&](int j, uint32_t bits) {
        pack.element[j] = from_float<T>((2.0f * RandomStream::to_uniform(bits) - 1.0f) * value);
      });
    } else if constexpr (N == 1) {
      pack.element[0] = from_float<T>(random.normal(first + i) * value);
    } else {
      uint32_t radius = 0;  // a pair of words gives a pair of numbers
      for_each_random<N>(random, first + i, [&](int j, uint32_t bits) {
        if (j % 2 == 0) {
          radius = bits;
          return;
        }
        const NormalPair pair = box_muller(radius, bits);
        pack.element[j - 1] = from_float<T>(pair.first * value);
        pack.element[j] = from_float<T>(pair.second * value);
      });
    }
    store<T, N>(y + i, pack);
  }
};

template <Init::Kind kKind>
void launch(Stream& stream, const InitParam& a) {
  visit_float(a.y.dtype, [&]<class T>() {
    const MakeValues<T, kKind> op{a.y.as<T>(), a.init.value, a.random, a.first};
    launch_flat<kPackSize<T>>(stream, "init_param", op, a.y.size(), packable<T>(a.first, op.y));
  });
}

}  // namespace

void init_param(Stream& stream, const InitParam& a) {
  switch (a.init.kind) {
    case Init::Kind::constant:
      return launch<Init::Kind::constant>(stream, a);
    case Init::Kind::normal:
      return launch<Init::Kind::normal>(stream, a);
    case Init::Kind::uniform:
      return launch<Init::Kind::uniform>(stream, a);
  }
}

}  // namespace flatshard::cuda
