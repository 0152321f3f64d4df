#include "model/kv_cache.h"

#include "model/names.h"

namespace flatshard {

KvCache::KvCache(const ModelConfig& config, int64_t capacity, DType dtype, Arena& arena)
    : layers_(static_cast<size_t>(config.layers)), capacity_(capacity) {
  const int64_t Hq = config.heads, Hkv = config.kv_heads, D = config.head_dim;
  const bool packed = param_names(config.family).linear_in_out;
  for (Layer& layer : layers_) {
    if (packed) {
      layer.qkv = arena.alloc(dtype, {capacity, Hq + 2 * Hkv, D});
    } else {
      layer.k = arena.alloc(dtype, {capacity, Hkv, D});
      layer.v = arena.alloc(dtype, {capacity, Hkv, D});
    }
  }
}

void KvCache::advance(int64_t tokens) {
  check(tokens >= 0 && tokens <= capacity_ - length_, "a cache of ", capacity_, " tokens holds ", length_,
        " and cannot take ", tokens, " more");
  length_ += tokens;
}

void KvCache::rewind(int64_t length) {
  check(length >= 0 && length <= length_, "a cache of ", length_, " tokens cannot keep ", length);
  length_ = length;
}

}  // namespace flatshard
