#pragma once
// The keys and values of earlier tokens, for every layer, used by generation. A forward pass with a cache in
// its Context computes only the new tokens: it writes their keys and values after the cached rows and attends
// over all of them. The caller then calls advance(); without it, the next pass overwrites the same rows.
//
// Layers with a fused qkv projection cache its whole output rows, q included, so that nothing is copied.

#include <cstdint>
#include <vector>

#include "model/config.h"
#include "runtime/arena.h"

namespace flatshard {

class KvCache {
 public:
  struct Layer {
    Tensor k, v;  // (capacity, kv_heads, head_dim)
    Tensor qkv;   // (capacity, heads + 2 kv_heads, head_dim), in place of k and v
  };

  KvCache() = default;
  KvCache(const ModelConfig& config, int64_t capacity, DType dtype, Arena& arena);

  int64_t length() const { return length_; }      // cached tokens
  int64_t capacity() const { return capacity_; }  // the maximum, in tokens
  const Layer& layer(int64_t i) const { return layers_[static_cast<size_t>(i)]; }

  void advance(int64_t tokens);
  void rewind(int64_t length);  // keeps the first `length` tokens

 private:
  std::vector<Layer> layers_;
  int64_t capacity_ = 0, length_ = 0;
};

}  // namespace flatshard
