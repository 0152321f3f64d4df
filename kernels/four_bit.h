#pragma once
// 4-bit weights, NF4 and FP4. A weight is cut into blocks of consecutive elements in row-major order. The
// absmax of a block is its largest magnitude, and a code is the index of a value in a table of sixteen:
//   absmax[b] = max |x[i]| over block b      code[i] = the value nearest to y = x[i] (1 / absmax[b])
//   dequantized[i] = table[code[i]] absmax[b]
// with one rounding, from fp32 to the dtype of the result. In NF4 a y halfway between two values takes the
// lower code. In FP4, a float with a sign, two exponent bits and one fraction bit, it takes the smaller
// magnitude, and a negative y that rounds to zero takes the code of -0. A block of zeros decodes to zeros.
// Two codes share a byte, the first one in the high nibble; an odd count is padded with the code of 0.
//
// Nested scales are stored in 8 bits, with a table of 256 values (kernels/dynamic_table.h), in blocks of
// kNestedBlock:
//   offset = mean of absmax      nested_absmax[k] = max |absmax[b] - offset| over block k
//   absmax[b] = nested_table[code[b]] nested_absmax[k] + offset
//
// Tables are data of a weight: the tables of a file are used unchanged. Inputs must be finite. All results
// have the same bits on a CPU and on a GPU.

#include <array>
#include <optional>

#include "runtime/named.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

enum class FourBitKind { nf4, fp4 };
constexpr auto value_names(FourBitKind) { return std::array{"nf4", "fp4"}; }

// How a linear layer stores its weight.
struct FourBitFormat {
  FourBitKind kind = FourBitKind::nf4;
  int64_t block = 64;
  bool nested = false;
  std::optional<DType> compute{};  // dtype of products; empty: the dtype of the activations

  bool operator==(const FourBitFormat&) const = default;
};

inline constexpr int64_t kNestedBlock = 256;
inline constexpr int64_t kSmallestFourBitBlock = 32, kLargestFourBitBlock = 4096;
// Returns whether blocks may have this size: a power of two within the bounds above.
bool is_four_bit_block(int64_t block);

using FourBitTable = std::array<float, 16>;
const FourBitTable& four_bit_table(FourBitKind kind);

constexpr int64_t code_bytes(int64_t elements) { return (elements + 1) / 2; }
constexpr int64_t block_count(int64_t elements, int64_t block) { return (elements + block - 1) / block; }

// A quantized weight.
struct FourBitMatrix {
  Tensor codes;   // (code_bytes(out in)) u8
  Tensor absmax;  // (block_count(out in, block)) f32, or u8 if nested
  Tensor table;   // (16) f32
  // The next three are empty unless the scales are nested.
  Tensor nested_absmax{};  // (block_count(absmax.size(), kNestedBlock)) f32
  Tensor nested_table{};   // (256) f32
  Tensor nested_offset{};  // (1) f32
  int64_t block;
  Shape shape;  // (out, in)

  bool is_nested() const { return absmax.dtype == DType::u8; }
};

// Quantizes x, which starts at a block of its weight. Any range of whole blocks of a larger weight, and its
// last part, give the same bits as quantizing the whole weight.
struct QuantizeFourBit {
  Tensor codes;   // (code_bytes(n)) u8
  Tensor absmax;  // (block_count(n, block)) f32
  Tensor x;       // n elements, f32, bf16 or f16
  FourBitKind kind;
  int64_t block;
};

// Quantizes the absmax of a whole weight, with the signed dynamic table. The mean is summed in double, in a
// fixed order.
struct QuantizeScales {
  Tensor codes;          // (n) u8
  Tensor nested_absmax;  // (block_count(n, kNestedBlock)) f32
  Tensor nested_offset;  // (1) f32
  Tensor absmax;         // (n) f32
};

// y = elements [first, first + y.size()) of the matrix. The range may start and end anywhere. y may be
// columns of wider rows.
struct DequantizeFourBit {
  Tensor y;  // f32, bf16 or f16
  FourBitMatrix w;
  int64_t first = 0;
  int64_t y_stride = 0;  // elements between rows; 0: rows are contiguous
};

void quantize_four_bit(Stream& stream, const QuantizeFourBit& a);
void quantize_scales(Stream& stream, const QuantizeScales& a);
void dequantize_four_bit(Stream& stream, const DequantizeFourBit& a);

// Throws an Error that names the part of the matrix whose dtype or size is wrong.
void check_matrix(const char* op, const FourBitMatrix& w);

// The bytes of all parts of the matrix.
double stored_bytes(const FourBitMatrix& w);

double min_bytes(const QuantizeFourBit& a);
double min_bytes(const QuantizeScales& a);
double min_bytes(const DequantizeFourBit& a);
double flops(const QuantizeFourBit& a);
double flops(const QuantizeScales& a);
double flops(const DequantizeFourBit& a);

namespace cuda {
void quantize_four_bit(Stream& stream, const QuantizeFourBit& a);
void quantize_scales(Stream& stream, const QuantizeScales& a);
void dequantize_four_bit(Stream& stream, const DequantizeFourBit& a, int64_t y_stride);
}  // namespace cuda

}  // namespace flatshard
