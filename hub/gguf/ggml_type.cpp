#include "hub/gguf/ggml_type.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "hub/gguf/ggml_blocks.h"
#include "runtime/check.h"
#include "runtime/dtype.h"

namespace flatshard {
namespace {

using Decode = void (*)(const std::byte* block, float* values);
using Encode = void (*)(const float* values, std::byte* block);

template <class T>
void decode_one(const std::byte* block, float* values) {
  T stored;
  std::memcpy(&stored, block, sizeof stored);
  *values = static_cast<float>(stored);
}

template <class T>
void encode_one(const float* values, std::byte* block) {
  const T stored(*values);
  std::memcpy(block, &stored, sizeof stored);
}

struct Row {
  GgmlType type;
  uint32_t id;
  int64_t values, bytes;  // values and bytes in a block
  Decode decode;
  Encode encode;  // null: can only be read
};

constexpr Row kRows[] = {
    {GgmlType::f32, 0, 1, 4, decode_one<float>, encode_one<float>},
    {GgmlType::f16, 1, 1, 2, decode_one<f16>, encode_one<f16>},
    {GgmlType::bf16, 30, 1, 2, decode_one<bf16>, encode_one<bf16>},
    {GgmlType::q8_0, 8, kSmallBlock, 34, decode_q8_0, encode_q8_0},
    {GgmlType::q4_0, 2, kSmallBlock, 18, decode_q4_0, nullptr},
    {GgmlType::q4_1, 3, kSmallBlock, 20, decode_q4_1, nullptr},
    {GgmlType::q4_k, 12, kLargeBlock, 144, decode_q4_k, encode_q4_k},
    {GgmlType::q6_k, 14, kLargeBlock, 210, decode_q6_k, encode_q6_k},
};

const Row& row_of(GgmlType type) {
  for (const Row& row : kRows)
    if (row.type == type) return row;
  fail(str("unknown GGML type ", static_cast<int>(type)));
}

constexpr std::array kNames{"F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
                            "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
                            "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
                            "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16"};

}  // namespace

std::optional<GgmlType> ggml_type_of(uint32_t id) {
  for (const Row& row : kRows)
    if (row.id == id) return row.type;
  return {};
}

uint32_t ggml_id_of(GgmlType type) { return row_of(type).id; }

std::string ggml_type_name(uint32_t id) {
  const bool known = id < kNames.size() && kNames[id][0] != '\0';
  return known ? kNames[id] : str("type ", id);
}

int64_t block_values(GgmlType type) { return row_of(type).values; }

int64_t ggml_bytes(GgmlType type, int64_t values) {
  const Row& row = row_of(type);
  return values / row.values * row.bytes;
}

void decode_ggml(GgmlType type, std::span<const std::byte> blocks, float* values) {
  const Row& row = row_of(type);
  for (const std::byte* at = blocks.data(); at < blocks.data() + blocks.size();
       at += row.bytes, values += row.values)
    row.decode(at, values);
}

bool encode_ggml(GgmlType type, std::span<const float> values, std::byte* blocks) {
  const Row& row = row_of(type);
  check(row.encode != nullptr, "GGML type ", type, " cannot be written");
  for (const float *at = values.data(), *end = at + values.size(); at < end;
       at += row.values, blocks += row.bytes)
    row.encode(at, blocks);
  if (row.values > 1 || type == GgmlType::f32) return true;
  return std::all_of(values.begin(), values.end(), [&](float value) {
    return std::isfinite(type == GgmlType::f16 ? static_cast<float>(f16(value))
                                               : static_cast<float>(bf16(value)));
  });
}

}  // namespace flatshard
