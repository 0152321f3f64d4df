#pragma once
// The linear layers of three models, for cases of their products: Qwen2.5 with 0.5 and 1.5 billion parameters
// and Llama-3-8B, with the tokens of a step.

#include <cstdint>
#include <vector>

namespace flatshard::bench {

struct LinearLayer {
  int64_t tokens, in, out;
};

inline std::vector<LinearLayer> linear_layers() {
  struct Model {
    int64_t tokens, hidden, qkv, ffn;
  };
  std::vector<LinearLayer> layers;
  for (const auto& [tokens, hidden, qkv, ffn] :
       {Model{16384, 896, 1152, 4864}, {16384, 1536, 2048, 8960}, {8192, 4096, 6144, 14336}}) {
    layers.push_back({tokens, hidden, qkv});      // q, k, v
    layers.push_back({tokens, hidden, hidden});   // o
    layers.push_back({tokens, hidden, 2 * ffn});  // gate, up
    layers.push_back({tokens, ffn, hidden});      // down
  }
  return layers;
}

}  // namespace flatshard::bench
