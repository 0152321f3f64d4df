#include "model/kv_cache.h"

#include "model/names.h"

namespace flatshard {

KvCache::KvCache(const ModelConfig& config, int64_t texts, int64_t capacity, DType dtype, Arena& arena)
    : layers_(static_cast<size_t>(config.layers)), lengths_(static_cast<size_t>(texts)), capacity_(capacity) {
  const int64_t Hq = config.heads, Hkv = config.kv_heads;
  const bool fused = param_names(config.family).fused_qkv();
  const Tensor row{nullptr, dtype, {1, fused ? Hq + 2 * Hkv : Hkv, config.head_dim}, {}};
  const Heads k = fused ? Heads(row, Hq, Hkv) : row, v = fused ? Heads(row, Hq + Hkv, Hkv) : row;
  for (std::vector<CachedKeys>& layer : layers_)
    for (int64_t text = 0; text < texts; ++text) layer.push_back(alloc_cached_keys(arena, k, v, capacity));
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
