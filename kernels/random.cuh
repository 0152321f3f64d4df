#pragma once
// Random numbers of consecutive elements on the GPU. One call of the generator yields four.

#include "kernels/cuda_util.cuh"
#include "runtime/rng.h"

namespace flatshard::cuda {

// Calls use(j, bits of number first + j) for j in [0, N). N is 1, or N and `first` are multiples of four.
template <int N, class Use>
__device__ inline void for_each_random(const RandomStream& random, int64_t first, Use&& use) {
  if constexpr (N == 1) {
    use(0, random.bits(first));
  } else {
    static_assert(N % 4 == 0);
#pragma unroll
    for (int begin = 0; begin < N; begin += 4) {
      const RandomWords words = random.words((first + begin) / 4);
#pragma unroll
      for (int k = 0; k < 4; ++k) use(begin + k, words.word[k]);
    }
  }
}

}  // namespace flatshard::cuda
