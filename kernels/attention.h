#pragma once
// Attention over packed documents. Tokens of all documents of a batch lie behind one another: queries of
// document d are rows [cu_seqlens[d], cu_seqlens[d + 1]), its keys the same rows, or those of cu_seqlens_kv.
// For a query row i and every head, with the keys j that it sees:
//   s_j = scale q_i k_j      lse_i = ln sum_j exp(s_j)      p_j = exp(s_j - lse_i)      o_i = sum_j p_j v_j
//   dv_j = sum_i p_j do_i    ds_j = p_j (do_i v_j - do_i o_i)
//   dq_i = scale sum_j ds_j k_j    dk_j = scale sum_i ds_j q_i
// With cu_seqlens_kv a document may have more keys than queries (generation with a cache): its queries then
// stand at the last positions. The query at position i sees key j iff they are of one document and, where
// attention is causal, j <= i, and with a window also j > i - window. Queries of head h use the keys of head
// h / (Hq / Hkv). A row that sees nothing gives o = 0, lse = -inf and no gradient.
//
// Sums are fp32; p and ds are rounded to the storage type before their products. Keys are taken in blocks
// from the start of a document, queries and heads in order: a row has the same bits whatever other rows are
// computed with it, in any number of threads. No T x T matrix is made: scratch is O(T Hq D).
// The CPU twin packs all keys before it starts, which pays from a few queries per key on; it runs one task
// for each query block forward, one for each query head of a document backward.

#include "runtime/arena.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

// Heads [first, first + count) of a (T, H, D) tensor: all of it, or one part of a packed q, k and v:
//   .q = {qkv, 0, Hq}, .k = {qkv, Hq, Hkv}, .v = {qkv, Hq + Hkv, Hkv}
struct Heads {
  Heads() = default;
  Heads(const Tensor& whole) : of(whole), count(whole.shape[-2]) {}
  Heads(const Tensor& whole, int64_t first_head, int64_t head_count)
      : of(whole), first(first_head), count(head_count) {}

  int64_t rows() const { return of.shape[0]; }
  int64_t head_size() const { return of.shape[-1]; }
  int64_t stride() const { return of.shape[-2] * of.shape[-1]; }  // from row to row
  int64_t bytes() const { return rows() * count * head_size() * size_of(of.dtype); }
  template <class T>
  T* at(int64_t row, int64_t head) const {
    return of.as<T>() + row * stride() + (first + head) * head_size();
  }

  Tensor of;
  int64_t first = 0, count = 0;
};

// Which queries see which keys.
struct AttentionMask {
  Tensor cu_seqlens;       // (documents + 1) i32: 0, ..., T
  Tensor cu_seqlens_kv{};  // the same for keys; empty: cu_seqlens
  bool causal = true;
  int64_t window = 0;  // keys a causal query sees, itself included; 0: all before it
};

struct AttentionForward {
  Heads o;     // (T, Hq, D)
  Tensor lse;  // (Hq, T) f32, kept for the backward pass
  Heads q;     // (T, Hq, D)
  Heads k;     // (Tkv, Hkv, D)
  Heads v;     // (Tkv, Hkv, D)
  AttentionMask mask;
  float scale;  // usually 1 / sqrt(D)
};

struct AttentionBackward {
  Heads dq, dk, dv;  // like q, k, v; written
  Heads grad_o;      // do, (T, Hq, D)
  Heads q, k, v, o;
  Tensor lse;  // (Hq, T) f32
  AttentionMask mask;
  float scale;
};

void attention_forward(Stream& stream, Arena& scratch, const AttentionForward& a);
void attention_backward(Stream& stream, Arena& scratch, const AttentionBackward& a);

double min_bytes(const AttentionForward& a);
double min_bytes(const AttentionBackward& a);
// Of the pairs that are seen, as if the tokens were spread evenly over the documents (whose boundaries may be
// on a device).
double flops(const AttentionForward& a);
double flops(const AttentionBackward& a);

namespace cuda {
void attention_forward(Stream& stream, const AttentionForward& a);
void attention_backward(Stream& stream, Arena& scratch, const AttentionBackward& a);
}  // namespace cuda

}  // namespace flatshard
