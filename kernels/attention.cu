// Attention on the GPU, for head sizes up to 256: tiles are made for the head sizes of models, and any other
// takes the next larger one's. Tiles of a document begin at its first key, so a row has the same bits
// whatever other rows are computed with it.

#include <algorithm>
#include <type_traits>

#include "kernels/attention.h"
#include "kernels/attention_backward.cuh"
#include "kernels/attention_forward.cuh"

namespace flatshard::cuda {

namespace {

Mask mask_of(const AttentionMask& mask, int64_t queries, int64_t keys) {
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

template <class T>
ForwardArguments<T> arguments_of(const AttentionForward& a, const Mask& mask) {
  return {.o = view<T>(a.o),
          .lse = a.lse.as<float>(),
          .q = view<T>(a.q),
          .k = view<T>(a.k),
          .v = view<T>(a.v),
          .mask = mask,
          .scale = a.scale * kLog2e};
}

template <class T>
BackwardArguments<T> arguments_of(const AttentionBackward& a, const Mask& mask, const Tensor& terms) {
  float* lse = terms.as<float>();
  return {.dq = view<T>(a.dq),
          .dk = view<T>(a.dk),
          .dv = view<T>(a.dv),
          .grad_o = view<T>(a.grad_o),
          .q = view<T>(a.q),
          .k = view<T>(a.k),
          .v = view<T>(a.v),
          .o = view<T>(a.o),
          .lse = a.lse.as<float>(),
          .terms = {lse, lse + terms.size() / 2},
          .mask = mask,
          .scale = a.scale,
          .scale_log2 = a.scale * kLog2e};
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

}  // namespace

void attention_forward(Stream& stream, const AttentionForward& a) {
  if (stream.planning()) return;
  const Mask mask = mask_of(a.mask, a.q.rows(), a.k.rows());
  if (mask.queries.rows == 0) return;
  visit_float(a.q.of.dtype, [&]<class T>() {
    visit_head_size<T>(a.q.head_size(), [&]<int D>() {
      launch<ForwardTiles<T, D>>(stream, "attention_forward", forward_kernel<T, D>, mask.queries,
                                 a.q.count / a.k.count, a.k.count, arguments_of<T>(a, mask));
    });
  });
}

void attention_backward(Stream& stream, Arena& scratch, const AttentionBackward& a) {
  const ArenaScope scope(scratch);
  const Tensor terms = scratch.alloc(DType::f32, {2, a.q.count, a.q.rows()});
  if (stream.planning()) return;
  const Mask mask = mask_of(a.mask, a.q.rows(), a.k.rows());
  const int64_t group = a.q.count / a.k.count;
  visit_float(a.q.of.dtype, [&]<class T>() {
    const BackwardArguments<T> arguments = arguments_of<T>(a, mask, terms);
    visit_head_size<T>(a.q.head_size(), [&]<int D>() {
      using KeyTiles = KeyGradientTiles<T, D>;
      if (mask.queries.rows > 0)
        launch<QueryGradientTiles<T, D>>(stream, "attention_backward: dq", query_gradient_kernel<T, D>,
                                         mask.queries, group, a.k.count, arguments);
      if (mask.keys.rows > 0)
        launch<KeyTiles>(stream, "attention_backward: dk, dv", key_gradient_kernel<T, D>, mask.keys,
                         a.k.count, KeyTiles::kParts, arguments, static_cast<int>(group));
    });
  });
}

}  // namespace flatshard::cuda
