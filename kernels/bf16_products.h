#pragma once
// How the CPU multiplies bf16 matrices: by instructions for bf16, or in f32, with operands that are widened.
// Products of few rows (gemm_rows.h) wait for memory, and take pairs wherever the build has them.
//
// Products of two bf16 values are exact in f32, but sums of them differ in their last bits. So the choice
// depends on the processor, on its instructions as far as ONEDNN_MAX_CPU_ISA allows them, and never on a
// measurement. `bench --bf16` measures both ways and tells whether the choice is right.

#include <string>

#include "runtime/processor.h"

namespace flatshard {

// The instructions for bf16 that products may use: none; products of pairs (vdpbf16ps of AVX-512); products
// of tiles (AMX) besides.
enum class Bf16Instructions { none, pairs, tiles };

enum class Bf16Products { native, widened };

struct Bf16Choice {
  Bf16Products tiles = Bf16Products::native;      // tiles of gemm() (gemm_tile.h)
  Bf16Products attention = Bf16Products::native;  // products of attention (tile_product.h)
  bool operator==(const Bf16Choice&) const = default;
};

// The choice for a processor with these instructions.
Bf16Choice choose_bf16_products(Bf16Instructions instructions, const ProcessorKind& processor);

// The choice for this processor, or the way that a ScopedBf16Products forces.
Bf16Choice bf16_products();

// Forces one way while it exists, for tests and measurements; only the widened one where the processor has no
// instructions for bf16. The scratch of an op, and the layout of cached
// keys (cached_attention.h), depend on the way.
class ScopedBf16Products {
 public:
  explicit ScopedBf16Products(Bf16Products way);
  ~ScopedBf16Products();
  ScopedBf16Products(const ScopedBf16Products&) = delete;
  ScopedBf16Products& operator=(const ScopedBf16Products&) = delete;

 private:
  int before_;
};

// "in bf16", "in f32, from widened operands", "in bf16; of attention in f32, from widened operands"
std::string describe(const Bf16Choice& choice);

}  // namespace flatshard
