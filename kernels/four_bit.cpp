#include "kernels/four_bit.h"

#include <bit>
#include <cmath>

#include "build_config.h"
#include "kernels/dynamic_encode.h"
#include "kernels/four_bit_decode.h"
#include "kernels/four_bit_encode.h"
#include "kernels/op.h"
#include "kernels/packed.h"
#include "kernels/parallel_write.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

constexpr int64_t kElementsPerTask = 32768;
// The size of a group, which remains in the L1 cache until it is encoded. Larger groups would leave the
// memory idle while they are encoded.
template <class T>
constexpr int64_t kElementsPerGroup = 4096 / sizeof(T);
constexpr int64_t kPairsWidth = 2 * kWidth, kCodesWidth = 2 * kPairsWidth;
constexpr int64_t kMeanLanesPerTask = 256;

// The largest magnitude of n values. The bits of magnitudes, compared as integers, have the same order.
template <class T>
[[gnu::always_inline]] inline float largest_magnitude(const T* x, int64_t n) {
  constexpr bool kHalves = sizeof(T) == sizeof(uint16_t);
  using Bits = std::conditional_t<kHalves, TwoHalves, Words>;
  constexpr int64_t kLanes = sizeof(Bits) / sizeof(T);
  Bits largest{};
  const auto add = [&](int64_t i, int64_t lanes) {
    const Bits v = load_bits<Bits>(x + i, lanes) & (kHalves ? 0x7fffu : 0x7fffffffu);
    largest = v > largest ? v : largest;
  };
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) add(i, kLanes);
  if (i < n) add(i, n - i);
  if constexpr (kHalves)
    return std::bit_cast<T>(max(largest));
  else
    return max((Floats)largest);
}

// The codes of 32 values, in the top bytes of the lanes; scaled(v) is y times the unit of the encoder.
template <class T, class Encoder, class Scaled>
[[gnu::always_inline]] inline Words encode(const T* x, const Encoder& encoder, Scaled&& scaled) {
  const Pairs v = load_pairs(x);
  const Words even = encoder(scaled(v.even)), odd = encoder(scaled(v.odd));
  return (even & 0xf0000000u) | odd >> 4;
}

// The codes of 64 values, as bytes.
template <class Encoder>
[[gnu::always_inline]] inline Halves finish(Words first, Words second) {
  return Encoder::finish(top_bytes(first, second));
}

// Encodes a block of any size and absmax.
template <class T, class Encoder>
void encode_any_block(uint8_t* codes, const T* x, int64_t n, float absmax, const Encoder& encoder) {
  const BlockScale scale(absmax);
  const Floats inverse = splat(scale.inverse * Encoder::kUnit);
  const auto scaled = [&](Floats v) { return v * scale.lift * inverse; };
  for (int64_t i = 0; i < n; i += kCodesWidth) {
    const int64_t count = std::min(kCodesWidth, n - i);
    T values[kCodesWidth]{};
    std::memcpy(values, x + i, static_cast<size_t>(count) * sizeof(T));
    const Halves bytes =
        finish<Encoder>(encode(values, encoder, scaled), encode(values + kPairsWidth, encoder, scaled));
    std::memcpy(codes + i / 2, &bytes, static_cast<size_t>(code_bytes(count)));
  }
}

// Quantizes n values, in blocks that remain in the L1 cache until they are encoded.
template <class T, class Encoder, class Output>
void quantize_group(uint8_t* codes, float* absmax, const T* x, int64_t n, int64_t block,
                    const Encoder& encoder, Output out) {
  const int64_t blocks = block_count(n, block);
  for (int64_t b = 0; b < blocks; ++b)
    absmax[b] = largest_magnitude(x + b * block, std::min(block, n - b * block));
  float inverse[kElementsPerGroup<T> / kSmallestFourBitBlock];
  bool usual = n % block == 0 && n % kCodesWidth == 0;  // only whole blocks without a lift
  for_each_vector(blocks, [&](int64_t b, auto lanes) {
    const Floats a = load(absmax + b, lanes);
    store(inverse + b, a > 0.0f ? Encoder::kUnit * (1.0f / a) : Floats{}, lanes);
    usual &= !any_zero((Words)((a == 0.0f) | (a >= 0x1p-64f)), ~Words{});
  });
  if (!usual) {
    for (int64_t b = 0; b < blocks; ++b)
      encode_any_block(codes + b * block / 2, x + b * block, std::min(block, n - b * block), absmax[b],
                       encoder);
    return;
  }
  const Encoder in_registers = encoder;
  const int block_bits = std::countr_zero(static_cast<uint64_t>(block));
  const auto encode_at = [&](int64_t i) {
    const Floats factor = splat(inverse[i >> block_bits]);
    return encode(x + i, in_registers, [&](Floats v) { return v * factor; });
  };
  for (int64_t i = 0; i < n; i += kCodesWidth)
    out.store_bits(codes + i / 2, finish<Encoder>(encode_at(i), encode_at(i + kPairsWidth)));
}

template <class T, class Encoder>
void quantize_all(const QuantizeFourBit& a) {
  const Encoder encoder;
  const int64_t group = std::max(kElementsPerGroup<T>, a.block);
  // The codes bypass the caches if the values fill them.
  parallel_write(a.x.bytes(), block_count(a.x.size(), group), kElementsPerTask / group,
                 [&](int64_t begin, int64_t end, auto out) {
                   for (int64_t i = begin * group; i < std::min(end * group, a.x.size()); i += group)
                     quantize_group(a.codes.as<uint8_t>() + i / 2, a.absmax.as<float>() + i / a.block,
                                    a.x.as<T>() + i, std::min(group, a.x.size() - i), a.block, encoder, out);
                 });
}

// The mean, summed in double: element i in lane i % kMeanLanes in order, then halves of the lanes by a tree.
float mean(const float* x, int64_t n) {
  std::array<double, kMeanLanes> lane{};
  parallel_blocks(kMeanLanes, kMeanLanesPerTask, [&](int64_t begin, int64_t end) {
    double* sums = lane.data();
    for (int64_t i = 0; i < n; i += kMeanLanes)
      for (int64_t k = begin; k < std::min(end, n - i); ++k) sums[k] += static_cast<double>(x[i + k]);
  });
  for (int64_t half = kMeanLanes / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) lane[k] += lane[k + half];
  return static_cast<float>(lane[0] / static_cast<double>(n));
}

// Quantizes one block of n scales and returns its absmax.
float quantize_scale_block(uint8_t* codes, const float* absmax, int64_t n, float offset,
                           const SignedEncoder& encoder) {
  Floats largest{};
  for_each_vector(n, [&](int64_t i, auto lanes) {
    largest = max(largest, keep_lanes(abs(load(absmax + i, lanes) - offset), lanes, 0.0f));
  });
  const float nested = max(largest);
  const BlockScale scale(nested);
  const auto scaled = [&](int64_t i, auto lanes) {
    return keep_lanes(load(absmax + i, lanes) - offset, lanes, 0.0f) * scale.lift * scale.inverse;
  };
  encode_values(codes, n, scaled, [&](Floats a, Floats b) { return encoder.lower_codes(a, b); });
  return nested;
}

void quantize_scales(const QuantizeScales& a) {
  const float* absmax = a.absmax.as<float>();
  const int64_t n = a.absmax.size();
  const float offset = mean(absmax, n);
  *a.nested_offset.as<float>() = offset;
  const SignedEncoder encoder;
  parallel_blocks(a.nested_absmax.size(), kElementsPerTask / kNestedBlock, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kNestedBlock;
      a.nested_absmax.as<float>()[b] = quantize_scale_block(
          a.codes.as<uint8_t>() + first, absmax + first, std::min(kNestedBlock, n - first), offset, encoder);
    }
  });
}

template <class T>
void dequantize_rows(const DequantizeFourBit& a, int64_t y_stride) {
  const FourBitDecoder<T> decoder(a.w);
  const int64_t C = a.y.shape[-1];
  parallel_write(a.y.bytes(), a.y.rows(), rows_per_block(C), [&](int64_t begin, int64_t end, auto out) {
    for (int64_t row = begin; row < end; ++row)
      decoder.decode(a.y.as<T>() + row * y_stride, a.first + row * C, C, out);
  });
}

template <class T>
void dequantize(const DequantizeFourBit& a, int64_t y_stride) {
  if (y_stride != a.y.shape[-1]) return dequantize_rows<T>(a, y_stride);
  const FourBitDecoder<T> decoder(a.w);
  parallel_write(a.y.bytes(), a.y.size(), kElementsPerTask, [&](int64_t begin, int64_t end, auto out) {
    decoder.decode(a.y.as<T>() + begin, a.first + begin, end - begin, out);
  });
}

}  // namespace
}  // namespace cpu

namespace {

void check_block(const char* op, int64_t block) {
  check(is_four_bit_block(block), op, ": block is ", block, ", must be a power of two from ",
        kSmallestFourBitBlock, " to ", kLargestFourBitBlock);
}

}  // namespace

bool is_four_bit_block(int64_t block) {
  return block >= kSmallestFourBitBlock && block <= kLargestFourBitBlock &&
         std::has_single_bit(static_cast<uint64_t>(block));
}

const FourBitTable& four_bit_table(FourBitKind kind) {
  return kind == FourBitKind::nf4 ? kNf4Table : kFp4Table;
}

void check_matrix(const char* op, const FourBitMatrix& w) {
  check_block(op, w.block);
  check(w.shape.rank() == 2, op, ": the weight is ", w.shape, ", must be a matrix");
  const int64_t blocks = block_count(w.shape.size(), w.block);
  check_elements(op, "codes", w.codes, DType::u8, code_bytes(w.shape.size()));
  check_elements(op, "absmax", w.absmax, w.is_nested() ? DType::u8 : DType::f32, blocks);
  check_elements(op, "table", w.table, DType::f32, 16);
  if (!w.is_nested()) return;
  check_elements(op, "nested_absmax", w.nested_absmax, DType::f32, block_count(blocks, kNestedBlock));
  check_elements(op, "nested_table", w.nested_table, DType::f32, 256);
  check_elements(op, "nested_offset", w.nested_offset, DType::f32, 1);
}

void quantize_four_bit(Stream& stream, const QuantizeFourBit& a) {
  constexpr const char* kOp = "quantize_four_bit";
  check(is_float(a.x.dtype), kOp, ": x is ", a.x.dtype, ", must be f32, bf16 or f16");
  check_block(kOp, a.block);
  check_elements(kOp, "codes", a.codes, DType::u8, code_bytes(a.x.size()));
  check_elements(kOp, "absmax", a.absmax, DType::f32, block_count(a.x.size(), a.block));
  if (a.x.empty() || plans(stream, kOp, a, a.x)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::quantize_four_bit(stream, a);
  stream.run(kOp, [a] {
    visit_float(a.x.dtype, [&]<class T>() {
      a.kind == FourBitKind::nf4 ? cpu::quantize_all<T, Nf4Encoder>(a) : cpu::quantize_all<T, Fp4Encoder>(a);
    });
  });
}

void quantize_scales(Stream& stream, const QuantizeScales& a) {
  constexpr const char* kOp = "quantize_scales";
  const int64_t n = a.absmax.size();
  check_elements(kOp, "absmax", a.absmax, DType::f32, n);
  check_elements(kOp, "codes", a.codes, DType::u8, n);
  check_elements(kOp, "nested_absmax", a.nested_absmax, DType::f32, block_count(n, kNestedBlock));
  check_elements(kOp, "nested_offset", a.nested_offset, DType::f32, 1);
  if (a.absmax.empty() || plans(stream, kOp, a, a.absmax)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::quantize_scales(stream, a);
  stream.run(kOp, [a] { cpu::quantize_scales(a); });
}

void dequantize_four_bit(Stream& stream, const DequantizeFourBit& a) {
  constexpr const char* kOp = "dequantize_four_bit";
  check_matrix(kOp, a.w);
  check(is_float(a.y.dtype), kOp, ": y is ", a.y.dtype, ", must be f32, bf16 or f16");
  check(a.first >= 0 && a.first + a.y.size() <= a.w.shape.size(), kOp, ": elements [", a.first, ", ",
        a.first + a.y.size(), ") are outside the ", a.w.shape.size(), " elements of the weight");
  const int64_t y_stride = stride_or_width("dequantize_four_bit: y", a.y_stride, a.y.shape[-1]);
  if (a.y.empty() || plans(stream, kOp, a, a.y)) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::dequantize_four_bit(stream, a, y_stride);
  stream.run(kOp,
             [a, y_stride] { visit_float(a.y.dtype, [&]<class T>() { cpu::dequantize<T>(a, y_stride); }); });
}

double stored_bytes(const FourBitMatrix& w) {
  return bytes_of(w.codes, w.absmax, w.table, w.nested_absmax, w.nested_table, w.nested_offset);
}

double min_bytes(const QuantizeFourBit& a) { return bytes_of(a.x, a.codes, a.absmax); }
double min_bytes(const QuantizeScales& a) {
  return bytes_of(a.absmax, a.codes, a.nested_absmax, a.nested_offset);
}
double min_bytes(const DequantizeFourBit& a) {
  const auto elements = static_cast<double>(a.w.shape.size());
  const double part = elements == 0 ? 0 : static_cast<double>(a.y.size()) / elements;
  return bytes_of(a.y) + part * stored_bytes(a.w);
}
// A comparison for each bit of a code counts as one operation, as does a product.
double flops(const QuantizeFourBit& a) { return 6.0 * static_cast<double>(a.x.size()); }
double flops(const QuantizeScales& a) { return 11.0 * static_cast<double>(a.absmax.size()); }
double flops(const DequantizeFourBit& a) { return static_cast<double>(a.y.size()); }

}  // namespace flatshard
