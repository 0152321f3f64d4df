#pragma once
// Launches the attention kernels, for head sizes up to 256. Kernels are compiled for the head sizes of common
// models; another size uses the next larger one. Tiles of keys start at the first key of a document, so the
// bits of a row do not depend on the other rows of the call.

#include <algorithm>
#include <type_traits>

#include "kernels/attention_tile.cuh"

namespace flatshard::cuda {

inline Mask mask_of(const AttentionMask& mask, const Heads& q, const Heads& k) {
  constexpr int64_t kNoWindow = int64_t{1} << 30;  // larger than kMostAttentionRows
  constexpr int64_t kFewestQueries = 8;            // rows of the smallest tile of queries
  const int64_t group = q.count / k.count;
  check(group <= INT32_MAX / (q.rows() / kFewestQueries + 1), "attention: ", q.rows(), " queries in each of ",
        group, " heads of a group are more tiles than a GPU counts, must be at most ", INT32_MAX);
  const int documents = static_cast<int>(mask.cu_seqlens.size() - 1);
  const Tensor& of_keys = mask.cu_seqlens_kv.empty() ? mask.cu_seqlens : mask.cu_seqlens_kv;
  return {.queries = {mask.cu_seqlens.as<int32_t>(), documents, static_cast<int>(q.rows())},
          .keys = {of_keys.as<int32_t>(), documents, static_cast<int>(k.rows())},
          .causal = mask.causal,
          .window = static_cast<int>(mask.window > 0 ? std::min(mask.window, kNoWindow) : kNoWindow),
          .group = static_cast<int>(group)};
}

template <class T>
ScoreCap<T> score_cap(float softcap, float scale) {
  if (softcap == 0) return {0, 0, 0};
  return {scale / softcap, softcap * kLog2e, 1 / (softcap * kLog2e)};
}

// Calls launch<D>() with the smallest compiled D that holds a head.
template <class T, class Launch>
void visit_head_size(int64_t head_size, Launch&& launch) {
  check(head_size <= 256, "attention: head size is ", head_size, ", must be at most 256 on a GPU");
  if (head_size <= 64) return launch.template operator()<64>();
  if constexpr (sizeof(T) == 2) {
    if (head_size <= 80) return launch.template operator()<80>();
    if (head_size <= 96) return launch.template operator()<96>();
  }
  if (head_size <= 128) return launch.template operator()<128>();
  launch.template operator()<256>();
}

// Launches a kernel with Tiles on a grid of (heads, slots): the longest blocks of all heads start first.
template <class Tiles, class... Arguments>
void launch(Stream& stream, const char* name, void (*kernel)(Arguments...), const Documents& documents,
            int64_t heads, const std::type_identity_t<Arguments>&... arguments) {
  constexpr int64_t kMostInY = 65535;
  const int64_t slots = documents.slots(Tiles::kRows), y = std::min(slots, kMostInY);
  const dim3 grid(static_cast<unsigned>(heads), static_cast<unsigned>(y),
                  static_cast<unsigned>((slots + y - 1) / y));
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Tiles::kBytes),
             "cudaFuncSetAttribute");
  kernel<<<grid, Tiles::kThreads, Tiles::kBytes, native(stream)>>>(arguments...);
  check_launch(stream, name);
}

}  // namespace flatshard::cuda
