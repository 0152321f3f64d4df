#pragma once
// The sink of one query of a head (attention_sink.h), on the CPU.

#include <algorithm>
#include <cmath>

#include "kernels/simd.h"

namespace flatshard {

// Replaces a row o of D elements, and its lse.
template <class T>
void add_sink(T* o, int64_t D, float& lse, float sink) {
  const float top = std::max(lse, sink);
  const float with = top + std::log(std::exp(lse - top) + std::exp(sink - top));
  const float share = std::exp(lse - with);
  simd::for_each_vector(
      D, [&](int64_t i, auto lanes) { simd::store(o + i, simd::load(o + i, lanes) * share, lanes); });
  lse = with;
}

}  // namespace flatshard
