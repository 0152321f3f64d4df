#pragma once
// The quantized blocks of GGUF files: each value is an integer times a scale, plus an offset in some types. A
// small block has one scale for 32 values. A large block has 256 values, and a scale for every 16 or 32 of
// them; these scales are integers themselves.
//
// The encoders write the same bytes as ggml's reference, so the order of each sum and the rounding of each
// product are fixed.

#include <cstddef>
#include <cstdint>

namespace flatshard {

inline constexpr int64_t kSmallBlock = 32, kLargeBlock = 256;

void decode_q8_0(const std::byte* block, float* values);
void decode_q4_0(const std::byte* block, float* values);
void decode_q4_1(const std::byte* block, float* values);
void decode_q4_k(const std::byte* block, float* values);
void decode_q6_k(const std::byte* block, float* values);

void encode_q8_0(const float* values, std::byte* block);
void encode_q4_k(const float* values, std::byte* block);
void encode_q6_k(const float* values, std::byte* block);

}  // namespace flatshard
