#pragma once
// Rotary position embedding of the first R elements of each head of D, R <= D: pairs (x[i], x[j]) are rotated
// by an angle that depends on the position p of their token,
//   y[i] = x[i] cos - x[j] sin      y[j] = x[j] cos + x[i] sin      angle = p frequency
// and gradients are rotated back by the same angle. Pair k is (x[k], x[k + R/2]), or (x[2k], x[2k + 1]) if
// interleaved. Its frequency is theta^(-2k/R), scaled by RopeScaling.
//
// Tokens of images have a position on each of several axes, such as row and column. RopeSections then
// determines which axis rotates which pairs.
//
// The table, whose width is R, holds cosines and sines for positions [0, P), computed in double on the host
// and rounded once, times RopeScaling::attention_factor. transformers, vLLM and Megatron round frequencies to
// fp32 and multiply them by positions in fp32. Their cosines and sines are up to 3e-4 away from exact ones at
// position 4,095, 5e-3 at 131,071 and 0.06 at 1,000,000, where an angle has steps of 0.06; ours are not.
//
// Where R < D, y must be x. x and y may be heads of a packed qkv matrix (kernels/packed.h), where one call
// rotates q and k together, and y may be x. A position outside the table throws Error before anything is
// written; on a GPU the kernel traps, and the Error names no position.

#include <array>
#include <vector>

#include "kernels/packed.h"
#include "runtime/named.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

struct RopeScaling {
  enum class Kind { none, linear, llama3, yarn, longrope };
  Kind kind = Kind::none;
  double factor = 1;  // linear: divides every frequency
  // llama3, with r = original_positions / wavelength: divides frequencies with r < low_frequency_factor by
  // factor, keeps frequencies with r > high_frequency_factor, and interpolates linearly in r between the two.
  double low_frequency_factor = 1, high_frequency_factor = 4;
  int64_t original_positions = 8192;
  // yarn, with turns = original_positions / wavelength: divides frequencies of less than beta_slow turns by
  // factor, keeps frequencies of more than beta_fast turns, and interpolates linearly in the index of the
  // pair between the indices with these turns. truncate rounds these indices away from each other.
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;
  std::vector<double> divisors{};  // longrope: divisor of each frequency
  double attention_factor = 1;     // factor of cosines and sines
};
constexpr auto value_names(RopeScaling::Kind) {
  return std::array{"none", "linear", "llama3", "yarn", "longrope"};
}

// The number of pairs that each axis of the positions rotates: axis 0 rotates the first pairs, axis 1 the
// next ones, and so on. All zero: there is one axis.
using RopeSections = std::array<int64_t, 3>;

// The R/2 frequencies in radians per position.
std::vector<double> rope_frequencies(int64_t R, double theta, const RopeScaling& scaling = {});

// Fills a host table (P, R) f32: row p holds R/2 cosines, then R/2 sines.
void rope_table(const Tensor& table, double theta, const RopeScaling& scaling = {});
// Fills the table for other frequencies.
void rope_table(const Tensor& table, const std::vector<double>& frequencies, double attention_factor = 1);

struct RopeForward {
  Tensor y;              // (T, H, D)
  Tensor x;              // (T, H, D), of y's dtype
  Tensor positions;      // (T) i32, in [0, P), or (axes, T)
  Tensor table;          // (P, R) f32
  int64_t y_stride = 0;  // elements between tokens; 0: H D
  int64_t x_stride = 0;
  bool interleaved = false;
  RopeSections sections{};
};

struct RopeBackward {
  Tensor dx;         // (T, H, D); may be dy
  Tensor dy;         // (T, H, D), of dx's dtype
  Tensor positions;  // (T) i32, in [0, P), or (axes, T)
  Tensor table;      // (P, R) f32
  int64_t dx_stride = 0;
  int64_t dy_stride = 0;
  bool interleaved = false;
  RopeSections sections{};
};

// The common form of both directions: y = x rotated by `sign` times the angle.
struct Rotation {
  Tensor y, x, positions, table;
  int64_t y_stride, x_stride;
  float sign;
  bool interleaved;
  RopeSections sections;  // {R/2} for one axis
  int64_t axes = 1;
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
