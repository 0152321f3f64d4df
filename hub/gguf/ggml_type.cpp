#include "hub/gguf/ggml_type.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "hub/quantized/mxfp4.h"
#include "runtime/check.h"
#include "runtime/dtype.h"

namespace flatshard {
namespace {

// The quantized blocks: each value is an integer times a scale, plus an offset in some types. A small block
// has one scale for 32 values. A large block has 256 values, and a scale for every 16 or 32 of them; these
// scales are integers themselves. The encoders write the same bytes as ggml's reference, so the order of each
// sum and the rounding of each product are fixed.
constexpr int64_t kSmallBlock = 32, kLargeBlock = 256;

struct Q8_0 {
  f16 scale;
  int8_t codes[kSmallBlock];
};

struct Q4_0 {
  f16 scale;
  uint8_t codes[kSmallBlock / 2];  // low four bits: the first half of the values
};

struct Q4_1 {
  f16 scale, offset;
  uint8_t codes[kSmallBlock / 2];
};

// Values of four bits times a power of two.
struct Mxfp4 {
  uint8_t exponent;                // plus 127
  uint8_t codes[kSmallBlock / 2];  // low four bits: the first half of the values
};

// Groups of 32 with a scale and an offset of six bits each.
constexpr int kQ4Group = 32, kQ4Groups = kLargeBlock / kQ4Group;
struct Q4_K {
  f16 scale, offset;   // units of the groups' scales and offsets
  uint8_t groups[12];  // packed by put_group()
  uint8_t codes[kLargeBlock / 2];
};

// Groups of 16 with a scale of eight bits.
constexpr int kQ6Group = 16, kQ6Groups = kLargeBlock / kQ6Group;
struct Q6_K {
  uint8_t low[kLargeBlock / 2], high[kLargeBlock / 4];  // four and two bits of each code
  int8_t groups[kQ6Groups];
  f16 scale;
};

static_assert(sizeof(Q8_0) == 34 && sizeof(Q4_0) == 18 && sizeof(Q4_1) == 20 && sizeof(Q4_K) == 144 &&
              sizeof(Q6_K) == 210 && sizeof(Mxfp4) == 17);

template <class Block>
Block load(const std::byte* from) {
  Block block;
  std::memcpy(&block, from, sizeof block);
  return block;
}

template <class Block>
void store(const Block& block, std::byte* to) {
  std::memcpy(to, &block, sizeof block);
}

// The nearest integer, ties to even, from the bits of value + 1.5 * 2^23.
int nearest(float value) {
  const auto bits = std::bit_cast<uint32_t>(value + 12582912.0f);
  return static_cast<int>(bits & 0x007fffffu) - 0x00400000;
}

// ---- q4_k ----

struct Q4Group {
  int scale, offset;  // six-bit integers
};

Q4Group group_of(const uint8_t* packed, int group) {
  if (group < 4) return {packed[group] & 63, packed[group + 4] & 63};
  return {(packed[group + 4] & 0xf) | ((packed[group - 4] >> 6) << 4),
          (packed[group + 4] >> 4) | ((packed[group] >> 6) << 4)};
}

// Stores a group. Groups must be in ascending order: later ones add their upper bits to the bytes of earlier
// ones.
void put_group(uint8_t* packed, int group, Q4Group g) {
  const auto byte = [](int bits) { return static_cast<uint8_t>(bits); };
  if (group < 4) {
    packed[group] = byte(g.scale);
    packed[group + 4] = byte(g.offset);
    return;
  }
  packed[group + 4] = byte((g.scale & 0xf) | ((g.offset & 0xf) << 4));
  packed[group - 4] = byte(packed[group - 4] | ((g.scale >> 4) << 6));
  packed[group] = byte(packed[group] | ((g.offset >> 4) << 6));
}

using Q4Codes = std::array<uint8_t, kQ4Group>;

// An approximation of x by scale * code - offset with codes from 0 to 15.
struct Q4Fit {
  float scale, offset;
  Q4Codes codes;
};

constexpr int kQ4Most = 15;

uint8_t q4_code(float value) { return static_cast<uint8_t>(std::max(0, std::min(kQ4Most, nearest(value)))); }

// The sum of weighted squares of the errors.
float q4_error(const float* x, const float* weights, const Q4Codes& codes, float scale, float least) {
  float error = 0;
  for (int i = 0; i < kQ4Group; ++i) {
    const float difference = scale * static_cast<float>(codes[static_cast<size_t>(i)]) + least - x[i];
    error += weights[i] * (difference * difference);
  }
  return error;
}

// Tries 21 scales around the one that maps the range of x to the codes. For the codes of each scale, solves
// for the scale and offset with the least weighted error. Once a better offset is known, codes count from it.
Q4Fit fit_q4(const float* x, const float* weights) {
  float least = x[0], most = x[0], sum_w = weights[0], sum_x = sum_w * x[0];
  for (int i = 1; i < kQ4Group; ++i) {
    if (x[i] < least) least = x[i];
    if (x[i] > most) most = x[i];
    sum_w += weights[i];
    sum_x += weights[i] * x[i];
  }
  if (least > 0) least = 0;
  if (most == least) return {.scale = 0, .offset = -least, .codes = {}};
  float inverse = kQ4Most / (most - least);
  Q4Fit best{.scale = 1 / inverse, .offset = 0, .codes = {}};
  for (int i = 0; i < kQ4Group; ++i) best.codes[static_cast<size_t>(i)] = q4_code(inverse * (x[i] - least));
  float best_error = q4_error(x, weights, best.codes, best.scale, least);
  for (int step = 0; step <= 20; ++step) {
    inverse = (-1.0f + 0.1f * static_cast<float>(step) + kQ4Most) / (most - least);
    Q4Codes codes;
    float sum_l = 0, sum_l2 = 0, sum_xl = 0;
    for (int i = 0; i < kQ4Group; ++i) {
      const uint8_t code = codes[static_cast<size_t>(i)] = q4_code(inverse * (x[i] - least));
      const float w = weights[i], l = static_cast<float>(code);
      sum_l += w * l;
      sum_l2 += w * l * l;
      sum_xl += w * l * x[i];
    }
    const float determinant = sum_w * sum_l2 - sum_l * sum_l;
    if (!(determinant > 0)) continue;
    float scale = (sum_w * sum_xl - sum_x * sum_l) / determinant;
    float offset = (sum_l2 * sum_x - sum_l * sum_xl) / determinant;
    if (offset > 0) {
      offset = 0;
      scale = sum_xl / sum_l2;
    }
    const float error = q4_error(x, weights, codes, scale, offset);
    if (error < best_error) {
      best.codes = codes;
      best_error = error;
      best.scale = scale;
      least = offset;
    }
  }
  best.offset = -least;
  return best;
}

Q4Fit fit_q4_group(const float* x) {
  float squares = 0, weights[kQ4Group];
  for (int i = 0; i < kQ4Group; ++i) squares += x[i] * x[i];
  const float typical = std::sqrt(squares / kQ4Group);
  for (int i = 0; i < kQ4Group; ++i) weights[i] = typical + std::fabs(x[i]);
  return fit_q4(x, weights);
}

// ---- q6_k ----

constexpr int kQ6Half = 32;         // codes range from -32 to 31
constexpr float kAllZero = 1e-15f;  // a group of smaller values counts as zero

using Q6Codes = std::array<int8_t, kQ6Group>;

int8_t q6_code(float value) {
  return static_cast<int8_t>(std::max(-kQ6Half, std::min(kQ6Half - 1, nearest(value))));
}

struct Q6Sums {
  float products = 0, squares = 0;  // sums of x * code and of code^2, weighted by x^2
};

Q6Sums q6_sums(const float* x, float inverse) {
  Q6Sums sums;
  for (int i = 0; i < kQ6Group; ++i) {
    const float w = x[i] * x[i], l = static_cast<float>(q6_code(inverse * x[i]));
    sums.products += w * x[i] * l;
    sums.squares += w * l * l;
  }
  return sums;
}

// Tries 19 scales around the one that maps the value farthest from zero to -32.
float fit_q6(const float* x, Q6Codes* codes) {
  codes->fill(0);
  float furthest = 0, distance = 0;
  for (int i = 0; i < kQ6Group; ++i)
    if (const float magnitude = std::fabs(x[i]); magnitude > distance) {
      distance = magnitude;
      furthest = x[i];
    }
  if (distance < kAllZero) {
    codes->fill(-kQ6Half);
    return 0;
  }
  const auto round_by = [&](float inverse) {
    for (int i = 0; i < kQ6Group; ++i) (*codes)[static_cast<size_t>(i)] = q6_code(inverse * x[i]);
  };
  float inverse = -static_cast<float>(kQ6Half) / furthest;
  round_by(inverse);
  const Q6Sums first = q6_sums(x, inverse);
  float scale = first.squares != 0 ? first.products / first.squares : 0.0f;
  float best = scale * first.products;
  for (int step = -9; step <= 9; ++step) {
    if (step == 0) continue;
    inverse = -(kQ6Half + 0.1f * static_cast<float>(step)) / furthest;
    const Q6Sums sums = q6_sums(x, inverse);
    if (!(sums.squares > 0) || !(sums.products * sums.products > best * sums.squares)) continue;
    round_by(inverse);
    scale = sums.products / sums.squares;
    best = scale * sums.products;
  }
  return scale;
}

// ---- decoders and encoders ----

void decode_q8_0(const std::byte* block, float* values) {
  const auto b = load<Q8_0>(block);
  for (const int8_t code : b.codes) *values++ = static_cast<float>(code) * static_cast<float>(b.scale);
}

void decode_q4_0(const std::byte* block, float* values) {
  const auto b = load<Q4_0>(block);
  for (int i = 0; i < kSmallBlock / 2; ++i) {
    values[i] = static_cast<float>((b.codes[i] & 0xf) - 8) * static_cast<float>(b.scale);
    values[i + kSmallBlock / 2] = static_cast<float>((b.codes[i] >> 4) - 8) * static_cast<float>(b.scale);
  }
}

void decode_q4_1(const std::byte* block, float* values) {
  const auto b = load<Q4_1>(block);
  const float scale = b.scale, offset = b.offset;
  for (int i = 0; i < kSmallBlock / 2; ++i) {
    values[i] = static_cast<float>(b.codes[i] & 0xf) * scale + offset;
    values[i + kSmallBlock / 2] = static_cast<float>(b.codes[i] >> 4) * scale + offset;
  }
}

void decode_q4_k(const std::byte* block, float* values) {
  const auto b = load<Q4_K>(block);
  for (int group = 0; group < kQ4Groups; ++group) {
    const Q4Group g = group_of(b.groups, group);
    const float scale = static_cast<float>(b.scale) * static_cast<float>(g.scale);
    const float offset = static_cast<float>(b.offset) * static_cast<float>(g.offset);
    const uint8_t* codes = b.codes + group / 2 * kQ4Group;
    for (int i = 0; i < kQ4Group; ++i) {
      const int code = group % 2 == 0 ? codes[i] & 0xf : codes[i] >> 4;
      *values++ = scale * static_cast<float>(code) - offset;
    }
  }
}

void decode_q6_k(const std::byte* block, float* values) {
  const auto b = load<Q6_K>(block);
  const float scale = b.scale;
  for (int i = 0; i < kLargeBlock; ++i) {
    const int half = i / 128, quarter = i / 32 % 4, at = i % 32;
    const int low = b.low[half * 64 + quarter % 2 * 32 + at] >> (quarter / 2 * 4) & 0xf;
    const int high = b.high[half * 32 + at] >> (quarter * 2) & 3;
    values[i] =
        scale * static_cast<float>(b.groups[i / kQ6Group]) * static_cast<float>((low | high << 4) - kQ6Half);
  }
}

void decode_mxfp4(const std::byte* block, float* values) {
  const auto b = load<Mxfp4>(block);
  const float scale = mxfp4_scale(b.exponent);
  for (int i = 0; i < kSmallBlock / 2; ++i) {
    values[i] = kMxfp4Values[b.codes[i] & 0xf] * scale;
    values[i + kSmallBlock / 2] = kMxfp4Values[b.codes[i] >> 4] * scale;
  }
}

void encode_q8_0(const float* values, std::byte* block) {
  Q8_0 b{};
  float furthest = 0;
  for (int i = 0; i < kSmallBlock; ++i) furthest = std::max(furthest, std::fabs(values[i]));
  const float scale = furthest / 127, inverse = scale != 0 ? 1.0f / scale : 0.0f;
  b.scale = f16(scale);
  for (int i = 0; i < kSmallBlock; ++i) b.codes[i] = static_cast<int8_t>(std::round(values[i] * inverse));
  store(b, block);
}

void encode_q4_k(const float* values, std::byte* block) {
  std::array<Q4Fit, kQ4Groups> fits;
  float most_scale = 0, most_offset = 0;
  for (int group = 0; group < kQ4Groups; ++group) {
    const Q4Fit& fit = fits[static_cast<size_t>(group)] = fit_q4_group(values + group * kQ4Group);
    if (fit.scale > most_scale) most_scale = fit.scale;
    if (fit.offset > most_offset) most_offset = fit.offset;
  }
  const float scales = most_scale > 0 ? 63.0f / most_scale : 0.0f;
  const float offsets = most_offset > 0 ? 63.0f / most_offset : 0.0f;
  const auto six_bits = [](float value) { return std::min(63, nearest(value) & 0xff); };
  Q4_K b{};
  for (int group = 0; group < kQ4Groups; ++group) {
    const Q4Fit& fit = fits[static_cast<size_t>(group)];
    put_group(b.groups, group, {six_bits(scales * fit.scale), six_bits(offsets * fit.offset)});
  }
  b.scale = f16(most_scale / 63.0f);
  b.offset = f16(most_offset / 63.0f);
  for (int group = 0; group < kQ4Groups; ++group) {
    Q4Codes& codes = fits[static_cast<size_t>(group)].codes;
    const Q4Group g = group_of(b.groups, group);
    const float scale = static_cast<float>(b.scale) * static_cast<float>(g.scale);
    const float offset = static_cast<float>(b.offset) * static_cast<float>(g.offset);
    for (int i = 0; i < kQ4Group && scale != 0; ++i)
      codes[static_cast<size_t>(i)] = q4_code((values[group * kQ4Group + i] + offset) / scale);
  }
  for (int i = 0; i < kLargeBlock / 2; ++i) {
    const auto pair = static_cast<size_t>(i / kQ4Group * 2), at = static_cast<size_t>(i % kQ4Group);
    b.codes[i] = static_cast<uint8_t>(fits[pair].codes[at] | fits[pair + 1].codes[at] << 4);
  }
  store(b, block);
}

void encode_q6_k(const float* values, std::byte* block) {
  std::array<Q6Codes, kQ6Groups> codes;
  std::array<float, kQ6Groups> scales{};
  float most_scale = 0, most = 0;  // the scale farthest from zero
  for (size_t group = 0; group < codes.size(); ++group) {
    scales[group] = fit_q6(values + group * kQ6Group, &codes[group]);
    if (const float magnitude = std::fabs(scales[group]); magnitude > most) {
      most = magnitude;
      most_scale = scales[group];
    }
  }
  Q6_K b{};
  if (most < kAllZero) return store(b, block);
  const float inverse = -128.0f / most_scale;
  b.scale = f16(1 / inverse);
  for (size_t group = 0; group < codes.size(); ++group) {
    b.groups[group] = static_cast<int8_t>(std::min(127, nearest(inverse * scales[group])));
    const float scale = static_cast<float>(b.scale) * static_cast<float>(b.groups[group]);
    for (size_t i = 0; i < kQ6Group && scale != 0; ++i)
      codes[group][i] = q6_code(values[group * kQ6Group + i] / scale);
  }
  for (int i = 0; i < kLargeBlock; ++i) {
    const int half = i / 128, quarter = i / 32 % 4, at = i % 32;
    const int code = codes[static_cast<size_t>(i / kQ6Group)][static_cast<size_t>(i % kQ6Group)] + kQ6Half;
    uint8_t& low = b.low[half * 64 + quarter % 2 * 32 + at];
    uint8_t& high = b.high[half * 32 + at];
    low = static_cast<uint8_t>(low | (code & 0xf) << (quarter / 2 * 4));
    high = static_cast<uint8_t>(high | code >> 4 << (quarter * 2));
  }
  store(b, block);
}

// ---- types ----

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
    {GgmlType::mxfp4, 39, kSmallBlock, 17, decode_mxfp4, nullptr},
};

const Row& row_of(GgmlType type) {
  for (const Row& row : kRows)
    if (row.type == type) return row;
  fail(str("unknown GGML type ", static_cast<int>(type)));
}

constexpr std::array kNames{"F32",     "F16",    "Q4_0",    "Q4_1",  "",       "",      "Q5_0",  "Q5_1",
                            "Q8_0",    "Q8_1",   "Q2_K",    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K",  "Q8_K",
                            "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S", "IQ2_S", "IQ4_XS",
                            "I8",      "I16",    "I32",     "I64",   "F64",    "IQ1_M", "BF16",  "",
                            "",        "",       "TQ1_0",   "TQ2_0", "",       "",      "",      "MXFP4"};

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
