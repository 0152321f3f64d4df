#include "kernels/four_bit.h"

#include <bit>
#include <cmath>

#include "build_config.h"
#include "kernels/dynamic_table.h"
#include "kernels/four_bit_buckets.h"
#include "kernels/four_bit_decode.h"
#include "runtime/parallel.h"

namespace flatshard {
namespace cpu {
namespace {

using namespace simd;

constexpr int64_t kElementsPerTask = 32768;

Floats magnitude(Floats v) { return (Floats)((Words)v & 0x7fffffffu); }

// The vectors of a FourBitBuckets.
struct Buckets {
  explicit Buckets(const FourBitBuckets& b) {
    for (int i = 0; i < 15; ++i) above[i] = b.above[i];
    for (int i = 0; i < 16; ++i) code[i] = b.code[i];
  }

  // The code of each lane, by binary search for the number of bounds below it.
  Ints code_of(Floats y) const {
    Ints index = (y > splat(above[7])) & 8;
    index += (y > lookup(above, index + 3)) & 4;
    index += (y > lookup(above, index + 1)) & 2;
    index += (y > lookup(above, index)) & 1;
    return (Ints)lookup((Floats)code, index);
  }

  Floats above{};
  Ints code;
};

// Quantizes one block of n elements and returns its absmax.
template <class T>
float quantize_block(uint8_t* codes, const T* x, int64_t n, const Buckets& buckets) {
  Floats largest{};
  for_each_vector(n, [&](int64_t i, auto lanes) { largest = max(largest, magnitude(load(x + i, lanes))); });
  const float absmax = max(largest);
  const BlockScale scale(absmax);
  const Floats lift = splat(scale.lift), inverse = splat(scale.inverse);
  for_each_vector(n, [&](int64_t i, auto lanes) {
    store_nibbles(codes + i / 2, buckets.code_of(load(x + i, lanes) * lift * inverse), lanes);
  });
  return absmax;
}

template <class T>
void quantize_all(const QuantizeFourBit& a) {
  const Buckets buckets(four_bit_buckets(a.kind));
  const int64_t n = a.x.size();
  parallel_blocks(a.absmax.size(), kElementsPerTask / a.block, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * a.block;
      a.absmax.as<float>()[b] = quantize_block(a.codes.as<uint8_t>() + first / 2, a.x.as<T>() + first,
                                               std::min(a.block, n - first), buckets);
    }
  });
}

// The mean, summed in double: element i in lane i % kMeanLanes in order, then halves of the lanes by a tree.
float mean(const float* x, int64_t n) {
  std::array<double, kMeanLanes> lane{};
  for (int64_t i = 0; i < n; i += kMeanLanes) {
    const int64_t lanes = std::min(kMeanLanes, n - i);
    for (int64_t k = 0; k < lanes; ++k) lane[k] += static_cast<double>(x[i + k]);
  }
  for (int64_t half = kMeanLanes / 2; half > 0; half /= 2)
    for (int64_t k = 0; k < half; ++k) lane[k] += lane[k + half];
  return static_cast<float>(lane[0] / static_cast<double>(n));
}

// Quantizes one block of n scales and returns its absmax.
float quantize_scale_block(uint8_t* codes, const float* absmax, int64_t n, float offset) {
  static constexpr DynamicMidpoints kMidpoints = midpoints(kSignedDynamicTable);
  float largest = 0;
  for (int64_t i = 0; i < n; ++i) largest = std::max(largest, std::abs(absmax[i] - offset));
  const BlockScale scale(largest);
  // All searches advance together, so that none waits for its comparison.
  std::array<float, kNestedBlock> y;
  std::array<int, kNestedBlock> index{};
  for (int64_t i = 0; i < n; ++i) y[i] = (absmax[i] - offset) * scale.lift * scale.inverse;
  for (int step = 128; step > 0; step /= 2)
    for (int64_t i = 0; i < n; ++i) index[i] += step & -(y[i] > kMidpoints[index[i] + step - 1]);
  for (int64_t i = 0; i < n; ++i) codes[i] = static_cast<uint8_t>(index[i]);
  return largest;
}

void quantize_scales(const QuantizeScales& a) {
  const float* absmax = a.absmax.as<float>();
  const int64_t n = a.absmax.size();
  const float offset = mean(absmax, n);
  *a.nested_offset.as<float>() = offset;
  parallel_blocks(a.nested_absmax.size(), kElementsPerTask / kNestedBlock, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * kNestedBlock;
      a.nested_absmax.as<float>()[b] = quantize_scale_block(a.codes.as<uint8_t>() + first, absmax + first,
                                                            std::min(kNestedBlock, n - first), offset);
    }
  });
}

template <class T>
void dequantize(const DequantizeFourBit& a) {
  const FourBitDecoder<T> decoder(a.w);
  parallel_blocks(a.y.size(), kElementsPerTask, [&](int64_t begin, int64_t end) {
    decoder.decode(a.y.as<T>() + begin, a.first + begin, end - begin);
  });
}

}  // namespace
}  // namespace cpu

namespace {

void check_part(const char* op, const char* name, const Tensor& t, DType dtype, int64_t size) {
  check(t.dtype == dtype && t.size() == size, op, ": ", name, " is ", t.dtype, " ", t.shape, ", must be ",
        dtype, " with ", size, " elements");
}

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
  check_part(op, "codes", w.codes, DType::u8, code_bytes(w.shape.size()));
  check_part(op, "absmax", w.absmax, w.is_nested() ? DType::u8 : DType::f32, blocks);
  check_part(op, "table", w.table, DType::f32, 16);
  if (!w.is_nested()) return;
  check_part(op, "nested_absmax", w.nested_absmax, DType::f32, block_count(blocks, kNestedBlock));
  check_part(op, "nested_table", w.nested_table, DType::f32, 256);
  check_part(op, "nested_offset", w.nested_offset, DType::f32, 1);
}

void quantize_four_bit(Stream& stream, const QuantizeFourBit& a) {
  constexpr const char* kOp = "quantize_four_bit";
  check(is_float(a.x.dtype), kOp, ": x is ", a.x.dtype, ", must be f32, bf16 or f16");
  check_block(kOp, a.block);
  check_part(kOp, "codes", a.codes, DType::u8, code_bytes(a.x.size()));
  check_part(kOp, "absmax", a.absmax, DType::f32, block_count(a.x.size(), a.block));
  if (stream.planning() || a.x.empty()) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::quantize_four_bit(stream, a);
  stream.run(kOp, [a] { visit_float(a.x.dtype, [&]<class T>() { cpu::quantize_all<T>(a); }); });
}

void quantize_scales(Stream& stream, const QuantizeScales& a) {
  constexpr const char* kOp = "quantize_scales";
  const int64_t n = a.absmax.size();
  check_part(kOp, "absmax", a.absmax, DType::f32, n);
  check_part(kOp, "codes", a.codes, DType::u8, n);
  check_part(kOp, "nested_absmax", a.nested_absmax, DType::f32, block_count(n, kNestedBlock));
  check_part(kOp, "nested_offset", a.nested_offset, DType::f32, 1);
  if (stream.planning() || a.absmax.empty()) return;
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
  if (stream.planning() || a.y.empty()) return;
  if constexpr (kCudaBuilt)
    if (stream.device().is_cuda()) return cuda::dequantize_four_bit(stream, a);
  stream.run(kOp, [a] { visit_float(a.y.dtype, [&]<class T>() { cpu::dequantize<T>(a); }); });
}

double stored_bytes(const FourBitMatrix& w) {
  const int64_t bytes = w.codes.bytes() + w.absmax.bytes() + w.table.bytes() + w.nested_absmax.bytes() +
                        w.nested_table.bytes() + w.nested_offset.bytes();
  return static_cast<double>(bytes);
}

double min_bytes(const QuantizeFourBit& a) {
  return static_cast<double>(a.x.bytes() + a.codes.bytes() + a.absmax.bytes());
}
double min_bytes(const QuantizeScales& a) {
  return static_cast<double>(a.absmax.bytes() + a.codes.bytes() + a.nested_absmax.bytes() +
                             a.nested_offset.bytes());
}
double min_bytes(const DequantizeFourBit& a) {
  const auto elements = static_cast<double>(a.w.shape.size());
  const double part = elements == 0 ? 0 : static_cast<double>(a.y.size()) / elements;
  return static_cast<double>(a.y.bytes()) + part * stored_bytes(a.w);
}
// A comparison for each bit of a code; a product of two values.
double flops(const QuantizeFourBit& a) { return 6.0 * static_cast<double>(a.x.size()); }
double flops(const QuantizeScales& a) { return 11.0 * static_cast<double>(a.absmax.size()); }
double flops(const DequantizeFourBit& a) { return static_cast<double>(a.y.size()); }

}  // namespace flatshard
