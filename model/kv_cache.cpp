#include "model/kv_cache.h"

namespace flatshard {

KvCache::KvCache(const ModelConfig& config, int64_t texts, int64_t capacity, DType dtype, Arena& arena)
    : layers_(static_cast<size_t>(config.layers)), lengths_(static_cast<size_t>(texts)), capacity_(capacity) {
  for (std::vector<CachedKeys>& layer : layers_)
    for (int64_t text = 0; text < texts; ++text)
      layer.push_back(alloc_cached_keys(arena, dtype, config.kv_heads, config.head_dim, capacity));
}

void KvCache::advance(int64_t text, int64_t tokens) {
  int64_t& length = lengths_[static_cast<size_t>(text)];
  check(tokens >= 0 && tokens <= capacity_ - length, "the KV cache holds ", length, " of ", capacity_,
        " tokens and cannot advance by ", tokens);
  length += tokens;
}

void KvCache::rewind(int64_t text, int64_t length) {
  int64_t& before = lengths_[static_cast<size_t>(text)];
  check(length >= 0 && length <= before, "the KV cache holds ", before, " tokens and cannot rewind to ",
        length);
  before = length;
}

}  // namespace flatshard
