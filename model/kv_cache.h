#pragma once
// What generation keeps of the tokens before: the keys and values of every layer. A forward pass with a cache
// in its Context takes the tokens that follow, projects those alone, writes their rows behind the kept ones
// and attends over all. Who runs the pass then calls advance(); until then the next pass writes the same rows
// again.
//
// Layers that project q, k and v as one matrix keep its rows whole, q included: attention reads them where
// the product wrote them, and nothing is copied.

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

  int64_t length() const { return length_; }      // tokens kept
  int64_t capacity() const { return capacity_; }  // tokens that fit
  const Layer& layer(int64_t i) const { return layers_[static_cast<size_t>(i)]; }

  void advance(int64_t tokens);
  void rewind(int64_t length);  // keeps the first `length` tokens only

 private:
  std::vector<Layer> layers_;
  int64_t capacity_ = 0, length_ = 0;
};

}  // namespace flatshard
