#pragma once
// Attention of texts that grow, for generation: the formula of attention.h, causal, over the keys and values
// of a text's earlier tokens, which a cache keeps, and of its new tokens, which are added to it. On the CPU
// the cache stores keys and values as the product of attention reads them, so that a new token packs only its
// own. On a GPU it stores the rows that the projections wrote, whole, with all their heads.
//
// The bits of a text's rows depend neither on the other texts of the call nor on how its tokens are divided
// into calls.

#include <vector>

#include "kernels/attention.h"

namespace flatshard {

// The keys and values of one text in one layer.
struct CachedKeys {
  Tensor k, v;  // on a GPU both are one tensor if the projection of q, k and v is
  int64_t capacity = 0;
};

// Memory for a text of `capacity` tokens, of the shapes and the dtype of the rows of k and v.
CachedKeys alloc_cached_keys(Arena& arena, const Heads& k, const Heads& v, int64_t capacity);

// The next `rows` rows of a call continue a text of `past` tokens.
struct CachedText {
  CachedKeys cache;
  int64_t past, rows;
  Tensor boundaries;  // (4) i32: 0, rows, 0, past + rows; read on a GPU only
};

struct CachedAttention {
  Heads o;        // (T, Hq, D)
  Heads q, k, v;  // of the new tokens of all texts, in order
  std::vector<CachedText> texts;
  int64_t window = 0;  // as in attention.h
  float scale;
  float softcap = 0;  // as in attention.h
};

void cached_attention_forward(Stream& stream, Arena& scratch, const CachedAttention& a);

}  // namespace flatshard
