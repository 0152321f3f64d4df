#pragma once
// Times products of bf16 on the CPU natively and with operands widened to f32, in turns, and compares the
// faster way with the choice for this processor (kernels/bf16_products.h).

#include <string>
#include <vector>

#include "bench/measure.h"
#include "kernels/bf16_products.h"

namespace flatshard::bench {

// One line of the table.
struct Bf16Result {
  std::string label{};
  bool is_attention = false;   // decided by Bf16Choice::attention, not by Bf16Choice::tiles
  double flops = 0;            // in one call
  Spread native{}, widened{};  // seconds of a call
  Spread ratio{};              // native / widened, of neighboring samples
};

// Measures products of many rows and attention: the cases whose labels contain all words.
std::vector<Bf16Result> measure_bf16(const std::vector<std::string>& words, double seconds);

// Whether each choice is the faster way, or hardly slower, over the results that it decides.
bool is_right(const Bf16Choice& choice, const std::vector<Bf16Result>& results);
std::string bf16_table(const Bf16Choice& choice, const std::vector<Bf16Result>& results);

}  // namespace flatshard::bench
