#pragma once
// Rotary position embedding, half-split: in each head of D elements the pair (x[i], x[i + D/2]) turns by the
// angle of its token's position p and frequency i,
//   y[i] = x[i] cos - x[i + D/2] sin      y[i + D/2] = x[i + D/2] cos + x[i] sin      angle = p frequency[i]
// and gradients turn back by the same angle. Frequencies are theta^(-2i/D), scaled as RopeScaling says.
//
// The table holds cosines and sines for positions [0, P), computed in double and rounded once; it is built
// on the host when a run starts. x and y may be heads inside a packed QKV matrix (kernels/packed.h; q and k
// lie side by side there, so one call turns both), and y may be x itself. A position outside the table is an
// Error before anything is written; on a GPU the kernel stops itself there, an Error that names none.

#include <vector>

#include "kernels/packed.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct RopeScaling {
  enum class Kind { none, linear, llama3 };
  Kind kind = Kind::none;
  double factor = 1;  // linear: every frequency is divided by it
  // llama3: wavelengths above original / low are divided by factor, those below original / high are kept, and
  // between the two the frequency goes over linearly in original / wavelength.
  double low_frequency_factor = 1, high_frequency_factor = 4;
  int64_t original_positions = 8192;
};

// The D/2 frequencies in radians per position.
std::vector<double> rope_frequencies(int64_t D, double theta, const RopeScaling& scaling = {});

// Fills a host table (P, D) f32: row p holds D/2 cosines, then D/2 sines.
void rope_table(const Tensor& table, double theta, const RopeScaling& scaling = {});

struct RopeForward {
  Tensor y;              // (T, H, D)
  Tensor x;              // (T, H, D), of y's dtype
  Tensor positions;      // (T) i32, in [0, P)
  Tensor table;          // (P, D) f32
  int64_t y_stride = 0;  // from token to token, in elements; 0: H D
  int64_t x_stride = 0;
};

struct RopeBackward {
  Tensor dx;         // (T, H, D); may be dy
  Tensor dy;         // (T, H, D), of dx's dtype
  Tensor positions;  // (T) i32, in [0, P)
  Tensor table;      // (P, D) f32
  int64_t dx_stride = 0;
  int64_t dy_stride = 0;
};

// Both directions: y = x turned by `sign` times the angle.
struct Rotation {
  Tensor y, x, positions, table;
  int64_t y_stride, x_stride;
  float sign;
};

void rope_forward(Stream& stream, const RopeForward& a);
void rope_backward(Stream& stream, const RopeBackward& a);

double min_bytes(const RopeForward& a);
double min_bytes(const RopeBackward& a);
double flops(const RopeForward& a);
double flops(const RopeBackward& a);

namespace cuda {
void rotate(Stream& stream, const char* op, const Rotation& r);
}  // namespace cuda

}  // namespace flatshard
