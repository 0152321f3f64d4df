#pragma once
// Attention over packed documents. The documents of a batch are concatenated: the queries of document d are
// rows [cu_seqlens[d], cu_seqlens[d + 1]), its keys the same rows, or the rows given by cu_seqlens_kv. For
// query row i, in each head, over the keys j that it attends to:
//   s_j = scale q_i k_j      lse_i = ln sum_j exp(s_j)      p_j = exp(s_j - lse_i)      o_i = sum_j p_j v_j
//   dv_j = sum_i p_j do_i    ds_j = p_j (do_i v_j - do_i o_i)
//   dq_i = scale sum_j ds_j k_j    dk_j = scale sum_i ds_j q_i
// With a soft cap c > 0, scores are bounded to (-c, c): s_j = c tanh(scale q_i k_j / c), and ds_j also has
// the factor 1 - (s_j / c)^2. With cu_seqlens_kv a document may have more keys than queries (generation with
// a cache): its queries then have the last positions. The query at position i attends to key j iff they
// belong to the same document and, with causal attention, j <= i, and with a window also j > i - window.
// Queries of head h use the keys of head h / (Hq / Hkv). A row that attends to no key gives o = 0, lse = -inf
// and no gradient. On a GPU, tanh errs by up to 2^-11 of its value if storage has 16 bits.
//
// Sums are fp32; p and ds are rounded to the storage type before their products. Keys are processed in blocks
// from the start of a document, queries and heads in order, so the bits of a row do not depend on the other
// rows of the call, as long as these are finite, or on the number of threads. No T x T matrix is stored:
// scratch is O(T Hq D). The CPU kernel first packs all keys, which pays off from a few queries per key; it
// runs one task per query block in the forward pass, one per query head of a document in the backward pass.

#include <string>

#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

// The most queries and keys of a call. Kernels count rows in 32 bits: the sum of two rows, a tile and a
// window fits. Elements they count in 64 bits.
inline constexpr int64_t kMostAttentionRows = (int64_t{1} << 30) - 1024;

// Heads [first, first + count) of a (T, H, D) tensor: all heads, or q, k or v of a packed qkv:
//   .q = {qkv, 0, Hq}, .k = {qkv, Hq, Hkv}, .v = {qkv, Hq + Hkv, Hkv}
struct Heads {
  Heads() = default;
  Heads(const Tensor& whole) : of(whole), count(whole.shape[-2]) {}
  Heads(const Tensor& whole, int64_t first_head, int64_t head_count)
      : of(whole), first(first_head), count(head_count) {}

  int64_t rows() const { return of.shape[0]; }
  int64_t head_size() const { return of.shape[-1]; }
  int64_t stride() const { return of.shape[-2] * of.shape[-1]; }  // elements between rows
  int64_t bytes() const { return rows() * count * head_size() * size_of(of.dtype); }
  template <class T>
  T* at(int64_t row, int64_t head) const {
    return of.as<T>() + row * stride() + (first + head) * head_size();
  }

  Tensor of;
  int64_t first = 0, count = 0;
};

// Determines which queries attend to which keys.
struct AttentionMask {
  Tensor cu_seqlens;       // (documents + 1) i32: 0, ..., T
  Tensor cu_seqlens_kv{};  // the same for keys; empty: cu_seqlens
  bool causal = true;
  int64_t window = 0;  // number of keys that a causal query attends to, with its own; 0: all up to its own
};

struct AttentionForward {
  Heads o;     // (T, Hq, D)
  Tensor lse;  // (Hq, T) f32, saved for the backward pass
  Heads q;     // (T, Hq, D)
  Heads k;     // (Tkv, Hkv, D)
  Heads v;     // (Tkv, Hkv, D)
  AttentionMask mask;
  float scale;        // usually 1 / sqrt(D)
  float softcap = 0;  // 0: none
};

struct AttentionBackward {
  Heads dq, dk, dv;  // like q, k, v
  Heads grad_o;      // do, (T, Hq, D)
  Heads q, k, v, o;
  Tensor lse;  // (Hq, T) f32
  AttentionMask mask;
  float scale;
  float softcap = 0;  // same as in the forward pass
};

void attention_forward(Stream& stream, Arena& scratch, const AttentionForward& a);
void attention_backward(Stream& stream, Arena& scratch, const AttentionBackward& a);

// The kernels that attention uses on a GPU: the newest ones for its architecture; the same, but on sm_90 one
// kernel for dq, dk and dv, where it supports the call (attention_one_pass.h); or, for comparisons, the ones
// for sm_80 on every GPU. The one pass needs more scratch than the others, so select the tier before memory
// is planned.
enum class AttentionTier { newest, one_pass, sm_80 };
void use_attention_tier(AttentionTier tier);
AttentionTier attention_tier();
// The name of the architecture whose kernels run for heads of this type and size, such as "sm_90".
std::string describe_attention_tier(DType dtype, int64_t head_size);

double min_bytes(const AttentionForward& a);
double min_bytes(const AttentionBackward& a);
// The operations of all unmasked pairs, for documents of equal length, since the boundaries may be in device
// memory.
double flops(const AttentionForward& a);
double flops(const AttentionBackward& a);

struct OnePassScratch;

namespace cuda {
void attention_forward(Stream& stream, const AttentionForward& a);
// `terms` and `one_pass` are scratch: f32 (2, Hq, rows), and that of the one pass, if it is used.
void attention_backward(Stream& stream, const AttentionBackward& a, const Tensor& terms,
                        const OnePassScratch* one_pass);
}  // namespace cuda

}  // namespace flatshard
