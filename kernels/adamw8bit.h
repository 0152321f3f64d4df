#pragma once
// AdamW with moments in 8 bits (Dettmers et al. 2021): moments are decoded, updated as in adamw.h, and
// encoded again. The state is {m, v, m_absmax, v_absmax}: m and v are codes, (n) u8; the others are
// (ceil(n / 256)) f32.
//
// A block is 256 elements. A moment is stored as a code c into a dynamic table (dynamic_table.h) and its
// block's largest magnitude: m = signed_table[c] m_absmax, v = unsigned_table[c] v_absmax. The code of m is
// the code of the value nearest to y = m (1 / m_absmax), in a tie the smaller in magnitude, except that a
// negative y never gets the code of zero; likewise for v. A block whose values are all below 2^-126 is stored
// as zeros: absmax 0, codes 127 and 0.
//
// An element whose new v is not finite gets m = v = 0 and keeps its p, except for the weight decay of the
// next steps. A caller that skips steps whose gradients are not finite never sees this.

#include "kernels/adamw.h"

namespace flatshard {

inline constexpr int64_t kMomentBlock = 256;

void adamw8bit(Stream& stream, const OptimizerUpdate& a);

namespace cuda {
void adamw8bit(Stream& stream, const OptimizerUpdate& a);
}  // namespace cuda

}  // namespace flatshard
