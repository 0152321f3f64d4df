#pragma once
// The element types of GGUF files that Flatshard reads, and the types that it writes. Values are stored in
// blocks that share scales; a row of a matrix is a whole number of blocks.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "runtime/named.h"

namespace flatshard {

enum class GgmlType : uint8_t { f32, f16, bf16, q8_0, q4_0, q4_1, q4_k, q6_k, mxfp4 };
constexpr auto value_names(GgmlType) {
  return std::array{"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q4_k", "q6_k", "mxfp4"};
}

// The type with this id in a file; nothing if Flatshard cannot read it.
std::optional<GgmlType> ggml_type_of(uint32_t id);
uint32_t ggml_id_of(GgmlType type);
// ggml's name of the type with this id: "Q5_K", or "type 41" for an unknown id.
std::string ggml_type_name(uint32_t id);

int64_t block_values(GgmlType type);
// `values` must be a multiple of block_values().
int64_t ggml_bytes(GgmlType type, int64_t values);

// Decodes the values of whole blocks.
void decode_ggml(GgmlType type, std::span<const std::byte> blocks, float* values);
// Rounds finite values to whole blocks, for any type but q4_0, q4_1 and mxfp4, with the same bytes as ggml's
// reference. Returns false, and undefined bytes, if a value is too large for f16 or bf16.
bool encode_ggml(GgmlType type, std::span<const float> values, std::byte* blocks);

}  // namespace flatshard
