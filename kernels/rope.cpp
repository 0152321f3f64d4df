#include "kernels/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "build_config.h"
#include "kernels/op.h"
#include "kernels/parallel_write.h"

namespace flatshard {
namespace {

void check_rotation(const char* op, const Rotation& r) {
  check(r.x.shape.rank() == 3 && r.y.shape == r.x.shape && r.y.dtype == r.x.dtype, op, ": from ", r.x.dtype,
        " ", r.x.shape, " to ", r.y.dtype, " ", r.y.shape, "; both must be (T, H, D) of one dtype");
  const int64_t D = r.x.shape[-1];
  check(D % 2 == 0, op, ": heads have ", D, " elements, must be even");
  check(r.positions.dtype == DType::i32 && r.positions.size() == r.axes * r.x.shape[0], op,
        ": positions are ", r.positions.dtype, " ", r.positions.shape, ", must be i32 with ",
        r.axes == 1 ? "one element" : "an element on each axis", " for each of ", r.x.shape[0], " tokens");
  check(r.table.dtype == DType::f32 && r.table.shape.rank() == 2 && r.table.shape[1] <= D &&
            r.table.shape[1] % 2 == 0,
        op, ": the table is ", r.table.dtype, " ", r.table.shape, ", must be f32 (positions, ", D,
        " or a smaller even number)");
  const auto& [first, second, third] = r.sections;
  check(first >= 0 && second >= 0 && third >= 0 && first + second + third == r.table.shape[1] / 2, op,
        ": sections of ", first, ", ", second, " and ", third, " pairs, must have ", r.table.shape[1] / 2,
        " in total, as the table has");
  check(r.table.shape[1] == D || r.x.empty() || r.y.data == r.x.data, op, ": rotates ", r.table.shape[1],
        " of ", D, " elements, which must be in place");
  check(r.x.empty() || r.y.data == nullptr || r.y.data != r.x.data || r.y_stride == r.x_stride, op,
        ": in place with strides ", r.x_stride, " and ", r.y_stride, "; they must be equal");
}

double llama3_frequency(double frequency, const RopeScaling& s) {
  const double old = static_cast<double>(s.original_positions), wavelength = 2 * std::numbers::pi / frequency;
  if (wavelength > old / s.low_frequency_factor) return frequency / s.factor;
  if (wavelength < old / s.high_frequency_factor) return frequency;
  const double t =
      (old / wavelength - s.low_frequency_factor) / (s.high_frequency_factor - s.low_frequency_factor);
  return (1 - t) * frequency / s.factor + t * frequency;
}

// The fractional index of the pair that makes `turns` turns within the original positions.
double yarn_index(double turns, double R, double theta, const RopeScaling& s) {
  const double old = static_cast<double>(s.original_positions);
  return R * std::log(old / (turns * 2 * std::numbers::pi)) / (2 * std::log(theta));
}

// The weight, from 0 to 1, with which the frequency of each pair is divided by the factor.
std::vector<double> yarn_shares(int64_t R, double theta, const RopeScaling& s) {
  const double width = static_cast<double>(R);
  double low = yarn_index(s.beta_fast, width, theta, s), high = yarn_index(s.beta_slow, width, theta, s);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, width - 1);
  if (low == high) high += 0.001;
  std::vector<double> shares;
  for (int64_t i = 0; i < R / 2; ++i)
    shares.push_back(std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0));
  return shares;
}

void check_scaling(const RopeScaling& s, int64_t R) {
  using Kind = RopeScaling::Kind;
  check(s.attention_factor > 0, "rope scaling: attention_factor is ", s.attention_factor,
        ", must be positive");
  if (s.kind == Kind::none) return;
  if (s.kind == Kind::longrope)
    return check(std::ssize(s.divisors) == R / 2, "rope scaling: there are ", s.divisors.size(),
                 " divisors, must be ", R / 2, ", one for each frequency");
  check(s.factor > 0, "rope scaling: factor is ", s.factor, ", must be positive");
  if (s.kind == Kind::linear) return;
  check(s.original_positions > 0, "rope scaling: original_positions is ", s.original_positions,
        ", must be positive");
  if (s.kind == Kind::yarn)
    return check(s.beta_slow > 0 && s.beta_slow <= s.beta_fast, "rope scaling: beta_slow is ", s.beta_slow,
                 ", must be positive and at most beta_fast = ", s.beta_fast);
  check(s.low_frequency_factor > 0 && s.low_frequency_factor < s.high_frequency_factor,
        "rope scaling: low_frequency_factor is ", s.low_frequency_factor,
        ", must be positive and below high_frequency_factor = ", s.high_frequency_factor);
}

}  // namespace

namespace cpu {
namespace {

using namespace simd;

// Rotates interleaved pairs of one head. out.store() writes whole vectors, so the neighbors of a pair are
// stored one by one.
template <class T>
void rotate_neighbors(T* y, const T* x, const float* cosines, const float* sines, int64_t pairs, float sign) {
  for (int64_t i = 0; i < pairs; ++i) {
    const float a = static_cast<float>(x[2 * i]), b = static_cast<float>(x[2 * i + 1]);
    const float sine = sines[i] * sign;
    y[2 * i] = T(std::fma(a, cosines[i], -b * sine));
    y[2 * i + 1] = T(std::fma(b, cosines[i], a * sine));
  }
}

template <class T>
void rotate(const Rotation& r) {
  const int64_t tokens = r.x.shape[0], H = r.x.shape[1], D = r.x.shape[2], width = r.table.shape[1],
                half = width / 2;
  // Rotates pairs [first, first + pairs) of token t by its position on one axis.
  const auto rotate_section = [&](int64_t t, int64_t position, int64_t first, int64_t pairs, auto out) {
    const float* cosines = r.table.as<float>() + position * width + first;
    const float* sines = cosines + half;
    for (int64_t h = 0; h < H; ++h) {
      const int64_t column = h * D + (r.interleaved ? 2 * first : first);
      const T* x = r.x.as<T>() + t * r.x_stride + column;
      T* y = r.y.as<T>() + t * r.y_stride + column;
      if (r.interleaved) {
        rotate_neighbors(y, x, cosines, sines, pairs, r.sign);
        continue;
      }
      for_each_vector(pairs, [&](int64_t i, auto lanes) {
        const Floats cosine = load(cosines + i, lanes), sine = load(sines + i, lanes) * r.sign;
        const Floats a = load(x + i, lanes), b = load(x + half + i, lanes);
        out.store(y + i, fma(a, cosine, -b * sine), lanes);
        out.store(y + half + i, fma(b, cosine, a * sine), lanes);
      });
    }
  };
  const int32_t* positions = r.positions.as<int32_t>();
  parallel_write(write_only_bytes(r.y, r.x), tokens, rows_per_block(H * D),
                 [&](int64_t begin, int64_t end, auto out) {
                   for (int64_t t = begin; t < end; ++t)
                     for (int64_t axis = 0, first = 0; axis < r.axes; first += r.sections[axis++])
                       rotate_section(t, positions[axis * tokens + t], first, r.sections[axis], out);
                 });
}

}  // namespace
}  // namespace cpu

namespace {

template <class Args>
void run_rotation(Stream& stream, const char* op, const Args& a, Rotation r) {
  if (r.sections == RopeSections{} && r.table.shape.rank() == 2) r.sections[0] = r.table.shape[1] / 2;
  r.axes = r.sections[2] > 0 ? 3 : r.sections[1] > 0 ? 2 : 1;
  check_rotation(op, r);
  if (r.x.empty() || plans(stream, op, a, r.x)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::rotate(stream, op, r);
  stream.run(op, [op, r] {
    check_positions(op, r.positions, r.x.shape[0], r.table.shape[0]);
    visit_float(r.x.dtype, [&]<class T>() { cpu::rotate<T>(r); });
  });
}

int64_t token_stride(const char* op, int64_t stride, const Tensor& x) {
  return stride_or_width(op, stride, x.shape[0] == 0 ? 0 : x.size() / x.shape[0]);
}

// The share of a head's elements that are rotated.
double rotated_share(const Tensor& x, const Tensor& table) {
  return static_cast<double>(table.shape[1]) / static_cast<double>(x.shape[2]);
}

}  // namespace

std::vector<double> rope_frequencies(int64_t R, double theta, const RopeScaling& scaling) {
  check(R > 0 && R % 2 == 0, "rope: rotates ", R, " elements, must be positive and even");
  check(theta > 0, "rope: theta is ", theta, ", must be positive");
  check_scaling(scaling, R);
  std::vector<double> frequencies, shares;
  if (scaling.kind == RopeScaling::Kind::yarn) shares = yarn_shares(R, theta, scaling);
  for (int64_t i = 0; i < R / 2; ++i) {
    const double base = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(R));
    const size_t at = static_cast<size_t>(i);
    switch (scaling.kind) {
      case RopeScaling::Kind::none:
        frequencies.push_back(base);
        break;
      case RopeScaling::Kind::linear:
        frequencies.push_back(base / scaling.factor);
        break;
      case RopeScaling::Kind::llama3:
        frequencies.push_back(llama3_frequency(base, scaling));
        break;
      case RopeScaling::Kind::yarn:
        frequencies.push_back(base * (1 - shares[at]) + base / scaling.factor * shares[at]);
        break;
      case RopeScaling::Kind::longrope:
        frequencies.push_back(base / scaling.divisors[at]);
        break;
    }
  }
  return frequencies;
}

void rope_table(const Tensor& table, double theta, const RopeScaling& scaling) {
  check(table.shape.rank() == 2 && !table.device.is_cuda(), "rope_table: the table is ", table.shape, " on ",
        table.device, ", must be (positions, R) on the cpu");
  rope_table(table, rope_frequencies(table.shape[1], theta, scaling), scaling.attention_factor);
}

void rope_table(const Tensor& table, const std::vector<double>& frequencies, double attention_factor) {
  check(table.shape.rank() == 2 && !table.device.is_cuda() && table.shape[1] == 2 * std::ssize(frequencies),
        "rope_table: the table is ", table.shape, " on ", table.device, ", must be (positions, ",
        2 * frequencies.size(), ") on the cpu");
  const int64_t R = table.shape[1];
  float* entries = table.as<float>();
  parallel_blocks(table.shape[0], 64, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      for (int64_t i = 0; i < R / 2; ++i) {
        const double angle = static_cast<double>(p) * frequencies[static_cast<size_t>(i)];
        entries[p * R + i] = static_cast<float>(std::cos(angle) * attention_factor);
        entries[p * R + R / 2 + i] = static_cast<float>(std::sin(angle) * attention_factor);
      }
  });
}

void rope_forward(Stream& stream, const RopeForward& a) {
  run_rotation(stream, "rope_forward", a,
               {.y = a.y,
                .x = a.x,
                .positions = a.positions,
                .table = a.table,
                .y_stride = token_stride("rope_forward", a.y_stride, a.y),
                .x_stride = token_stride("rope_forward", a.x_stride, a.x),
                .sign = 1.0f,
                .interleaved = a.interleaved,
                .sections = a.sections});
}

void rope_backward(Stream& stream, const RopeBackward& a) {
  run_rotation(stream, "rope_backward", a,
               {.y = a.dx,
                .x = a.dy,
                .positions = a.positions,
                .table = a.table,
                .y_stride = token_stride("rope_backward", a.dx_stride, a.dx),
                .x_stride = token_stride("rope_backward", a.dy_stride, a.dy),
                .sign = -1.0f,
                .interleaved = a.interleaved,
                .sections = a.sections});
}

// The table does not count, since its rows stay in the caches. In place, only the rotated part of a head is
// read and written; otherwise the rest is copied.
double min_bytes(const RopeForward& a) {
  const double part = a.y.data == a.x.data ? rotated_share(a.x, a.table) : 1;
  return part * bytes_of(a.x, a.y) + bytes_of(a.positions);
}
double min_bytes(const RopeBackward& a) {
  const double part = a.dx.data == a.dy.data ? rotated_share(a.dx, a.table) : 1;
  return part * bytes_of(a.dy, a.dx) + bytes_of(a.positions);
}
double flops(const RopeForward& a) {
  return 3.0 * rotated_share(a.x, a.table) * static_cast<double>(a.x.size());
}
double flops(const RopeBackward& a) {
  return 3.0 * rotated_share(a.dx, a.table) * static_cast<double>(a.dx.size());
}

}  // namespace flatshard
