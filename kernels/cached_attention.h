#pragma once
// Attention of growing texts, for generation: the causal attention of attention.h over the keys and values of
// a text's earlier tokens, which a cache keeps, and of its new tokens, which are added to the cache. On the
// CPU the cache stores keys and values in the layout of attention's products, so that only new tokens are
// packed. On a GPU it stores their rows.
//
// The bits of a text's rows depend neither on the other texts of the call nor on how its tokens are divided
// into calls.

#include <vector>

#include "kernels/attention.h"

namespace flatshard {

// The keys and values of one text in one layer.
struct CachedKeys {
  Tensor k, v;
  int64_t capacity = 0;
};

// Memory for a text of `capacity` tokens, whose keys and values have `heads` heads of D elements each.
CachedKeys alloc_cached_keys(Arena& arena, DType dtype, int64_t heads, int64_t D, int64_t capacity);

// The next `rows` rows of a call continue a text of `past` tokens.
struct CachedText {
  CachedKeys cache;
  int64_t past, rows;
  Tensor boundaries;  // (4) i32: 0, rows, 0, past + rows; used only on a GPU
};

struct CachedAttention {
  Heads o;        // (T, Hq, D)
  Heads q, k, v;  // the new tokens of all texts, in order
  std::vector<CachedText> texts;
  Tensor sinks{};      // (Hq) of the dtype of o, or empty (attention_sink.h)
  int64_t window = 0;  // see attention.h
  float scale;
  float softcap = 0;  // see attention.h
};

void cached_attention_forward(Stream& stream, Arena& scratch, const CachedAttention& a);

}  // namespace flatshard
