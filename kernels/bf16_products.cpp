#include "kernels/bf16_products.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "kernels/gemm_tile.h"
#include "kernels/tile_product.h"

namespace flatshard {
namespace {

// Processors on which a product of pairs takes longer than the two products of widened values, by their
// makers' numbers. Each was measured (bench/results/cpu-bf16.md).
struct SlowPairs {
  const char *vendor, *name;
  int64_t family, model;
};
constexpr SlowPairs kSlowPairs[] = {
    {"GenuineIntel", "Sapphire Rapids", 6, 143},
    {"GenuineIntel", "Emerald Rapids", 6, 207},
};

bool has_slow_pairs(const ProcessorKind& processor) {
  return std::any_of(std::begin(kSlowPairs), std::end(kSlowPairs), [&](const SlowPairs& slow) {
    return processor == ProcessorKind{slow.vendor, slow.family, slow.model};
  });
}

constexpr int kNotForced = -1;
std::atomic<int> forced{kNotForced};

}  // namespace

Bf16Choice choose_bf16_products(Bf16Instructions instructions, const ProcessorKind& processor) {
  const auto native_if = [](bool is_fast) { return is_fast ? Bf16Products::native : Bf16Products::widened; };
  const bool has_fast_pairs = instructions != Bf16Instructions::none && !has_slow_pairs(processor);
  return {.tiles = native_if(instructions == Bf16Instructions::tiles || has_fast_pairs),
          .attention = native_if(has_fast_pairs)};
}

Bf16Choice bf16_products() {
  constexpr bool kHasPairs = tile::kPerWord<bf16> == 2;  // whether this build multiplies pairs
  static const Bf16Instructions instructions = bf16_instructions();
  static const Bf16Choice chosen = choose_bf16_products(instructions, processor_kind());
  const int way = forced.load(std::memory_order_relaxed);
  Bf16Choice choice = chosen;
  if (way != kNotForced) choice.tiles = choice.attention = static_cast<Bf16Products>(way);
  if (!kHasPairs) choice.attention = Bf16Products::widened;
  if (instructions == Bf16Instructions::none) choice.tiles = Bf16Products::widened;
  return choice;
}

ScopedBf16Products::ScopedBf16Products(Bf16Products way) : before_(forced.exchange(static_cast<int>(way))) {}
ScopedBf16Products::~ScopedBf16Products() { forced = before_; }

std::string describe(const Bf16Choice& choice) {
  if (choice.tiles == Bf16Products::widened) return "in f32, from widened operands";
  return choice.attention == Bf16Products::native ? "in bf16"
                                                  : "in bf16; of attention in f32, from widened operands";
}

}  // namespace flatshard
