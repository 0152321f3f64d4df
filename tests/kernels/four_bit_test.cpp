#include "kernels/four_bit.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/dynamic_table.h"
#include "kernels/four_bit_buckets.h"
#include "runtime/sha256.h"
#include "tests/golden.h"
#include "tests/test.h"

using namespace flatshard;

namespace {

using Codes = std::vector<uint8_t>;
using Values = std::vector<float>;

template <class T>
Tensor view(std::vector<T>& v) {
  return tensor_of(v.data(), {static_cast<int64_t>(v.size())});
}

template <class Work>
void on_cpu(Work&& work) {
  StreamSet streams(Device::cpu());
  work(streams.add("compute"));
}

struct Quantized {
  Codes codes;
  Values absmax;
};

template <class T>
Quantized quantize(std::vector<T> x, FourBitKind kind = FourBitKind::nf4, int64_t block = 64) {
  const auto n = static_cast<int64_t>(x.size());
  Quantized q{Codes(code_bytes(n)), Values(block_count(n, block))};
  on_cpu([&](Stream& stream) {
    quantize_four_bit(
        stream,
        {.codes = view(q.codes), .absmax = view(q.absmax), .x = view(x), .kind = kind, .block = block});
  });
  return q;
}

template <class T>
std::vector<T> dequantize(Quantized q, int64_t n, FourBitKind kind = FourBitKind::nf4, int64_t block = 64) {
  std::vector<T> y(n);
  FourBitTable table = four_bit_table(kind);
  on_cpu([&](Stream& stream) {
    dequantize_four_bit(stream, {.y = view(y),
                                 .w = {.codes = view(q.codes),
                                       .absmax = view(q.absmax),
                                       .table = tensor_of(table.data(), {16}),
                                       .block = block,
                                       .shape = {1, n}}});
  });
  return y;
}

struct NestedScales {
  Codes codes;
  Values absmax, offset;
};

NestedScales quantize_nested(Values scales) {
  const auto n = static_cast<int64_t>(scales.size());
  NestedScales q{Codes(n), Values(block_count(n, kNestedBlock)), Values(1)};
  on_cpu([&](Stream& stream) {
    quantize_scales(stream, {.codes = view(q.codes),
                             .nested_absmax = view(q.absmax),
                             .nested_offset = view(q.offset),
                             .absmax = view(scales)});
  });
  return q;
}

// The scales, as the values of a weight that has one block for each and only the table entry 1.
Values restore(NestedScales q, Values nested_table) {
  constexpr int64_t kBlock = kSmallestFourBitBlock;
  const auto n = static_cast<int64_t>(q.codes.size());
  Codes codes(n * kBlock / 2);
  Values table(16, 1.0f), y(n * kBlock), scales(n);
  on_cpu([&](Stream& stream) {
    dequantize_four_bit(stream, {.y = view(y),
                                 .w = {.codes = view(codes),
                                       .absmax = view(q.codes),
                                       .table = view(table),
                                       .nested_absmax = view(q.absmax),
                                       .nested_table = view(nested_table),
                                       .nested_offset = view(q.offset),
                                       .block = kBlock,
                                       .shape = {n, kBlock}}});
  });
  for (int64_t i = 0; i < n; ++i) scales[i] = y[i * kBlock];
  return scales;
}

// Input A of the specification.
Values input(int n) {
  Values x(n);
  for (int i = 0; i < n; ++i) x[i] = static_cast<float>((i * 37 + 11) % 101 - 50) / 64.0f;
  return x;
}

template <class Container>
std::string sha256(const Container& values) {
  Sha256 sha;
  sha.add(values.data(), values.size() * sizeof(values[0]));
  return sha.hex();
}

std::string hex(const Codes& bytes) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes) text += {kDigits[byte / 16], kDigits[byte % 16]};
  return text;
}

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }

int code_at(const Codes& codes, int i) { return i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15; }

}  // namespace

TEST_CASE("the NF4 and FP4 tables and the bounds of NF4 have the bits of the specification") {
  constexpr std::array<uint32_t, 16> kNf4{
      0xbf800000, 0xbf3239b1, 0xbf066b30, 0xbeca32a0, 0xbe91a24d, 0xbe3d353f, 0xbdba7871, 0x00000000,
      0x3da2faff, 0x3e24cae3, 0x3e7c04dd, 0x3ead033a, 0x3ee1a4b8, 0x3f1007ab, 0x3f3913b3, 0x3f800000};
  constexpr std::array<uint32_t, 8> kFp4{0x00000000, 0x3baaaaab, 0x3f2aaaab, 0x3f800000,
                                         0x3eaaaaab, 0x3f000000, 0x3e2aaaab, 0x3e800000};
  constexpr std::array<uint32_t, 15> kBounds{0xbf591cd8, 0xbf1c5270, 0xbeeb8480, 0xbeadea76, 0xbe703cec,
                                             0xbe0d38bc, 0xbd3a7871, 0x3d22faff, 0x3df64862, 0x3e5067e0,
                                             0x3e9582d4, 0x3ec753f9, 0x3f006d04, 0x3f248daf, 0x3f5c89da};
  for (size_t i = 0; i < 16; ++i) {
    CHECK(bits(four_bit_table(FourBitKind::nf4)[i]) == kNf4[i]);
    CHECK(bits(four_bit_table(FourBitKind::fp4)[i]) == (kFp4[i % 8] | (i < 8 ? 0 : 0x80000000)));
  }
  for (size_t i = 0; i < 15; ++i) CHECK(bits(four_bit_buckets(FourBitKind::nf4).above[i]) == kBounds[i]);
}

TEST_CASE("the dynamic tables have the checksums of the specification") {
  CHECK(sha256(dynamic_table(true)) == "6d0ca9fed140bc2c31b9be3292029e22a209f6955020e65b13ceb5d7592f4e25");
  CHECK(sha256(dynamic_table(false)) == "8bdfcefe676c452769befeb4d489f5528b91b56d1c5405a95e17feb70181062e");
  CHECK(dynamic_table(true)[kSignedZero] == 0.0f);
}

TEST_CASE("NF4 gives the codes and values of the specification") {
  const Quantized a = quantize(input(128));
  CHECK(a.absmax == Values{0.78125f, 0.765625f});
  CHECK(hex(a.codes) ==
        "17e29f3b05d17e2af4c06d18e2a04c16e29f3b05d17e29f3c05d18e2af4c16e1"
        "9f3b05d17e29f3b05d18e2af4c06e18e3b04d17e29f3b05d17e2af4c06d18e2a");
  CHECK(sha256(dequantize<float>(a, 128)).starts_with("97a447f108141e6d"));
  CHECK(sha256(dequantize<bf16>(a, 128)).starts_with("a2706cd1e80a70fd"));

  Values c(64);
  const Values x = input(64);
  c.insert(c.end(), x.begin(), x.end());
  const Quantized zero = quantize(c);
  CHECK(zero.absmax == Values{0.0f, 0.78125f});
  CHECK(hex(zero.codes).starts_with(std::string(64, '7') + "17e29f3b05d17e2a"));

  Values d(33280);
  uint32_t state = 12345;
  for (int i = 0; i < 33280; ++i) {
    state = state * 1664525 + 1013904223;
    d[i] = static_cast<float>(((state >> 8) * 0x1p-24 - 0.5) * (1 + i / 64 % 7));
  }
  const Quantized large = quantize(d);
  CHECK(sha256(large.codes).starts_with("8f245e10d7c859aa"));
  CHECK(sha256(large.absmax).starts_with("cdbdccd7ae2b1a0b"));
}

TEST_CASE("FP4 gives the codes of the specification") {
  CHECK(hex(quantize(input(128), FourBitKind::fp4).codes) ==
        "a92d63c4be5a12d73c5be2a12d7bf5a92a63c4be5a02d63c4be2a12d73f5a92a"
        "63d4bf5a92d63c4be2a12d73c5be2a63d4bf5a92a63c4be5a12d73c5be2a13d7");
}

TEST_CASE("an odd count is padded with the code of zero") {
  const Quantized nf4 = quantize(input(131));
  CHECK(nf4.absmax == Values{0.78125f, 0.765625f, 0.78125f});
  CHECK(hex(nf4.codes).ends_with("04c7"));
  CHECK(quantize(Values{1.0f}, FourBitKind::fp4).codes == Codes{0x30});
}

TEST_CASE("in NF4, a value halfway between two table entries takes the lower code") {
  Values x(four_bit_buckets(FourBitKind::nf4).above.begin(), four_bit_buckets(FourBitKind::nf4).above.end());
  x.push_back(1.0f);  // the absmax
  const Codes codes = quantize(x).codes;
  for (int i = 0; i < 16; ++i) CHECK(code_at(codes, i) == i);
}

TEST_CASE("in FP4, a value at a bound takes the smaller magnitude, and one just above it the larger") {
  constexpr std::array<float, 7> kBounds{0.00260417f, 0.0859375f, 0.20833333f, 0.29166667f,
                                         0.4166667f,  0.583333f,  0.8333333f};
  constexpr std::array<int, 8> kCodes{0, 1, 6, 7, 4, 5, 2, 3};
  Values x{1.0f, -0.0f, 0.0f, -std::numeric_limits<float>::denorm_min()};
  for (const float sign : {1.0f, -1.0f})
    for (const float bound : kBounds)
      for (const float above : {0.0f, 2.0f}) x.push_back(sign * std::nextafter(bound, above));
  for (const float sign : {1.0f, -1.0f})
    for (const float bound : kBounds) x.push_back(sign * bound);
  const Codes codes = quantize(x, FourBitKind::fp4).codes;
  CHECK(hex({codes[0], codes[1]}) == "3008");
  for (int sign = 0; sign < 2; ++sign)
    for (int i = 0; i < 7; ++i) {
      CHECK(code_at(codes, 4 + sign * 14 + 2 * i) == kCodes[i] + 8 * sign);
      CHECK(code_at(codes, 4 + sign * 14 + 2 * i + 1) == kCodes[i + 1] + 8 * sign);
      CHECK(code_at(codes, 32 + sign * 7 + i) == kCodes[i] + 8 * sign);
    }
}

TEST_CASE("a code is that of a search among the bounds, next to every bound and for any absmax") {
  for (const FourBitKind kind : {FourBitKind::nf4, FourBitKind::fp4}) {
    const FourBitBuckets& buckets = four_bit_buckets(kind);
    Values x;
    for (int block = 0; block < 200; ++block) {
      const float absmax = std::ldexp(1.0f + static_cast<float>(block) / 200, block - 100);
      x.push_back(absmax);
      for (int i = 1; i < 64; ++i) {
        x.push_back(buckets.above[i % 15] * absmax);
        for (int steps = i / 15; steps > 0; --steps) x.back() = std::nextafter(x.back(), absmax);
      }
    }
    const Quantized q = quantize(x, kind);
    for (int i = 0; i < static_cast<int>(x.size()); ++i) {
      const float y = x[i] * (1 / q.absmax[i / 64]);
      const auto below = std::lower_bound(buckets.above.begin(), buckets.above.end(), y);
      REQUIRE(code_at(q.codes, i) == buckets.code[below - buckets.above.begin()]);
    }
  }
}

TEST_CASE("a range of whole blocks is quantized to the same bits as the whole weight") {
  const Values x = input(1000);
  for (const FourBitKind kind : {FourBitKind::nf4, FourBitKind::fp4}) {
    const Quantized whole = quantize(x, kind, 128);
    for (const int first : {128, 512, 896}) {
      const Quantized part = quantize(Values(x.begin() + first, x.end()), kind, 128);
      CHECK(part.codes == Codes(whole.codes.begin() + first / 2, whole.codes.end()));
      CHECK(part.absmax == Values(whole.absmax.begin() + first / 128, whole.absmax.end()));
    }
  }
}

TEST_CASE("blocks of the smallest and the largest floats are quantized like others") {
  const Values x = input(64);
  const Quantized expected = quantize(x);
  for (const float factor : {0x1p-140f, 0x1p-130f, 0x1p-100f, 0x1p126f}) {
    CAPTURE(factor);
    Values other(64);
    for (int i = 0; i < 64; ++i) other[i] = x[i] * factor;
    const Quantized q = quantize(other);
    CHECK(q.codes == expected.codes);
    CHECK(q.absmax[0] == 0.78125f * factor);
  }
}

TEST_CASE("double quantization gives the codes of the specification, and restores the scales") {
  constexpr int kCount = 1000;
  Values absmax(kCount);
  for (int i = 0; i < kCount; ++i) absmax[i] = static_cast<float>((i * 29 + 3) % 97 + 1) / 128.0f;
  const NestedScales q = quantize_nested(absmax);
  CHECK(q.offset[0] == doctest::Approx(0.38215625286).epsilon(1e-10));
  for (const float nested : q.absmax) CHECK(nested == doctest::Approx(0.37565624714).epsilon(1e-10));
  CHECK(sha256(q.codes).starts_with("f07221b545308ecb"));
  const Values restored = restore(q, {dynamic_table(true).begin(), dynamic_table(true).end()});
  float error = 0;
  for (int i = 0; i < kCount; ++i) error = std::max(error, std::abs(restored[i] - absmax[i]));
  CHECK(error == doctest::Approx(0.0026158).epsilon(1e-4));
}

TEST_CASE("codes, scales and dequantized values are those of bitsandbytes") {
  const auto golden = test::load_golden("quantized");
  const auto values = [&](const std::string& name) {
    const std::vector<double>& all = golden.at(name).values;
    return Values(all.begin(), all.end());
  };
  const auto codes_of = [&](const std::string& name) {
    const std::vector<double>& all = golden.at(name).values;
    return Codes(all.begin(), all.end());
  };
  const Values x = values("x");
  const auto n = static_cast<int64_t>(x.size());
  for (const FourBitKind kind : {FourBitKind::nf4, FourBitKind::fp4})
    for (const int64_t block : {32, 64, 512, 4096}) {
      const std::string name = str(kind == FourBitKind::nf4 ? "nf4_" : "fp4_", block, '.');
      CAPTURE(name);
      const Quantized ours = quantize(x, kind, block),
                      theirs{codes_of(name + "codes"), values(name + "absmax")};
      CHECK(ours.absmax == theirs.absmax);
      if (kind == FourBitKind::nf4) CHECK(ours.codes == theirs.codes);
      // Their FP4 codes have 0 for -0.
      CHECK(dequantize<float>(ours, n, kind, block) == dequantize<float>(theirs, n, kind, block));
      if (block != 64) continue;
      const std::vector<bf16> y = dequantize<bf16>(theirs, n, kind, block);
      CHECK(Values(y.begin(), y.end()) == values(name + "y_bf16"));
    }

  const NestedScales ours = quantize_nested(values("nf4_32.absmax"));
  CHECK(ours.codes == codes_of("nf4_32.scale_codes"));
  constexpr double kMean = 1e-6;  // bitsandbytes sums the mean in fp32
  CHECK(ours.offset[0] == doctest::Approx(values("nf4_32.nested_offset")[0]).epsilon(kMean));
  CHECK(ours.absmax[0] == doctest::Approx(values("nf4_32.nested_absmax")[0]).epsilon(kMean));
  const NestedScales theirs{codes_of("nf4_32.scale_codes"), values("nf4_32.nested_absmax"),
                            values("nf4_32.nested_offset")};
  CHECK(restore(theirs, values("nf4_32.nested_table")) == values("nf4_32.restored"));
}

TEST_CASE("scales that are all equal are restored exactly") {
  const NestedScales q = quantize_nested(Values(300, 0.3f));
  CHECK(q.absmax == Values{0.0f, 0.0f});
  CHECK(q.codes == Codes(300, kSignedZero));
  CHECK(restore(q, {dynamic_table(true).begin(), dynamic_table(true).end()}) == Values(300, 0.3f));
}

TEST_CASE("4-bit ops report parts that do not fit") {
  Codes codes(32);
  Values absmax(1), x(64), table(16);
  const auto error_of = [&](auto work) {
    return test::error_of([&] { on_cpu([&](Stream& stream) { work(stream); }); });
  };
  const auto quantize_error = [&](const Tensor& code_part, int64_t block) {
    return error_of([&](Stream& stream) {
      quantize_four_bit(stream, {.codes = code_part,
                                 .absmax = view(absmax),
                                 .x = view(x),
                                 .kind = FourBitKind::nf4,
                                 .block = block});
    });
  };
  CHECK(test::missing_from(quantize_error(view(codes), 48),
                           {"quantize_four_bit: ", "block", "48", "power of two", "32", "4096"}) == "");
  CHECK(quantize_error(view(codes).slice(0, 31), 64) ==
        "quantize_four_bit: codes is u8 (31), must be u8 with 32 elements");
  CHECK(quantize_error(view(x), 64) == "quantize_four_bit: codes is f32 (64), must be u8 with 32 elements");

  FourBitMatrix w{
      .codes = view(codes), .absmax = view(absmax), .table = view(table), .block = 64, .shape = {8, 8}};
  const auto dequantize_error = [&](int64_t first) {
    return error_of(
        [&](Stream& stream) { dequantize_four_bit(stream, {.y = view(x), .w = w, .first = first}); });
  };
  CHECK(dequantize_error(0).empty());
  CHECK(dequantize_error(1) ==
        "dequantize_four_bit: elements [1, 65) are outside the 64 elements of the weight");
  w.absmax = view(codes).slice(0, 1);
  CHECK(dequantize_error(0) == "dequantize_four_bit: nested_absmax is f32 (0), must be f32 with 1 elements");
  w.shape = {9, 8};
  CHECK(dequantize_error(0) == "dequantize_four_bit: codes is u8 (32), must be u8 with 36 elements");
}
