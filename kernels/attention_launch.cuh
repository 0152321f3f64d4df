#pragma once
// How the passes of attention start on the GPU, for head sizes up to 256: tiles are made for the head sizes
// of models, and any other takes the next larger one's. Tiles of a document begin at its first key, so a row
// has the same bits whatever other rows are computed with it.

#include <algorithm>
#include <type_traits>

#include "kernels/attention_tile.cuh"

namespace flatshard::cuda {

inline Mask mask_of(const AttentionMask& mask, int64_t queries, int64_t keys) {
  constexpr int64_t kMost = int64_t{1} << 30;  // differences and sums of two rows are 32 bits
  check(queries < kMost && keys < kMost, "attention: ", queries, " queries and ", keys,
        " keys are too many, at most ", kMost - 1);
  const int documents = static_cast<int>(mask.cu_seqlens.size() - 1);
  const Tensor& of_keys = mask.cu_seqlens_kv.empty() ? mask.cu_seqlens : mask.cu_seqlens_kv;
  return {.queries = {mask.cu_seqlens.as<int32_t>(), documents, static_cast<int>(queries)},
          .keys = {of_keys.as<int32_t>(), documents, static_cast<int>(keys)},
          .causal = mask.causal,
          .window = static_cast<int>(mask.window > 0 ? std::min(mask.window, kMost) : kMost)};
}

// Calls launch<D>() for the smallest tiles that hold a head.
template <class T, class Launch>
void visit_head_size(int64_t head_size, Launch&& launch) {
  check(head_size <= 256, "attention: head size ", head_size, " is too large for a GPU, at most 256");
  if (head_size <= 64) return launch.template operator()<64>();
  if constexpr (sizeof(T) == 2) {
    if (head_size <= 80) return launch.template operator()<80>();
    if (head_size <= 96) return launch.template operator()<96>();
  }
  if (head_size <= 128) return launch.template operator()<128>();
  launch.template operator()<256>();
}

// Starts a kernel with Tiles, one block for each tile of rows of all documents and for (y, z).
template <class Tiles, class... Arguments>
void launch(Stream& stream, const char* name, void (*kernel)(Arguments...), const Documents& documents,
            int64_t y, int64_t z, const std::type_identity_t<Arguments>&... arguments) {
  const dim3 grid(static_cast<unsigned>(documents.slots(Tiles::kRows)), static_cast<unsigned>(y),
                  static_cast<unsigned>(z));
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tiles::kBytes),
             "cudaFuncSetAttribute");
  kernel<<<grid, Tiles::kThreads, Tiles::kBytes, native(stream)>>>(arguments...);
  check_launch(name);
}

}  // namespace flatshard::cuda
