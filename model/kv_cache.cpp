#include "model/kv_cache.h"

#include "model/names.h"

namespace flatshard {

KvCache::KvCache(const ModelConfig& config, int64_t capacity, DType dtype, Arena& arena)
    : layers_(static_cast<size_t>(config.layers)), capacity_(capacity) {
  const int64_t Hq = config.heads, Hkv = config.kv_heads, D = config.head_dim;
  const bool fused = param_names(config.family).fused_qkv();
  for (Layer& layer : layers_) {
    if (fused) {
      layer.qkv = arena.alloc(dtype, {capacity, Hq + 2 * Hkv, D});
    } else {
      layer.k = arena.alloc(dtype, {capacity, Hkv, D});
      layer.v = arena.alloc(dtype, {capacity, Hkv, D});
    }
  }
}

void KvCache::advance(int64_t tokens) {
  check(tokens >= 0 && tokens <= capacity_ - length_, "the KV cache holds ", length_, " of ", capacity_,
        " tokens and cannot advance by ", tokens);
  length_ += tokens;
}

void KvCache::rewind(int64_t length) {
  check(length >= 0 && length <= length_, "the KV cache holds ", length_, " tokens and cannot rewind to ",
        length);
  length_ = length;
}

}  // namespace flatshard
