#pragma once
// The keys and values of the earlier tokens of several texts, for every layer, used by generation. A forward
// pass with a cache in its LayerCall computes only the new tokens: it adds their keys and values to the cache
// and attends over all keys of their texts (kernels/cached_attention.h). The caller then calls advance();
// without it, the next pass overwrites them.

#include <cstdint>
#include <vector>

#include "kernels/cached_attention.h"
#include "model/config.h"
#include "runtime/arena.h"

namespace flatshard {

// The next `rows` tokens of a pass continue a text of the cache.
struct TextRows {
  int64_t text, rows;
};

class KvCache {
 public:
  KvCache() = default;
  // Allocates memory for `texts` texts of up to `capacity` tokens each.
  KvCache(const ModelConfig& config, int64_t texts, int64_t capacity, DType dtype, Arena& arena);

  int64_t texts() const { return static_cast<int64_t>(lengths_.size()); }
  int64_t capacity() const { return capacity_; }
  int64_t length(int64_t text) const { return lengths_[static_cast<size_t>(text)]; }  // cached tokens
  const CachedKeys& keys(int64_t layer, int64_t text) const {
    return layers_[static_cast<size_t>(layer)][static_cast<size_t>(text)];
  }

  void advance(int64_t text, int64_t tokens);
  void rewind(int64_t text, int64_t length);  // keeps the first `length` tokens

 private:
  std::vector<std::vector<CachedKeys>> layers_;  // [layer][text]
  std::vector<int64_t> lengths_;
  int64_t capacity_ = 0;
};

}  // namespace flatshard
