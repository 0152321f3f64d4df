#include "runtime/crc64.h"

#include <array>
#include <cstring>

#if defined(__PCLMUL__)
#include <immintrin.h>
#endif

namespace flatshard {
namespace {

// Polynomials over GF(2), modulo the polynomial of ECMA-182, with the lowest power in the highest bit.
constexpr uint64_t kModulus = 0xc96c5795d7870f42, kOne = uint64_t{1} << 63, kX8 = kOne >> 8;

constexpr uint64_t times_x(uint64_t a) { return (a >> 1) ^ (a & 1 ? kModulus : 0); }

constexpr uint64_t product(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  for (uint64_t bit = kOne; bit != 0; bit >>= 1, b = times_x(b))
    if (a & bit) sum ^= b;
  return sum;
}

// kPowers[i] = x^(8 * 2^i), the factor that extends a sum over 2^i zero bytes.
using Powers = std::array<uint64_t, 64>;
constexpr Powers make_powers() {
  Powers powers{kX8};
  for (size_t i = 1; i < powers.size(); ++i) powers[i] = product(powers[i - 1], powers[i - 1]);
  return powers;
}
constexpr Powers kPowers = make_powers();

// kTables[k][byte]: the sum of a byte followed by k zero bytes.
using Tables = std::array<std::array<uint64_t, 256>, 8>;
constexpr Tables make_tables() {
  Tables t{};
  for (uint64_t byte = 0; byte < 256; ++byte) {
    uint64_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = times_x(value);
    t[0][byte] = value;
  }
  for (size_t k = 1; k < t.size(); ++k)
    for (size_t byte = 0; byte < 256; ++byte)
      t[k][byte] = (t[k - 1][byte] >> 8) ^ t[0][t[k - 1][byte] & 0xff];
  return t;
}
constexpr Tables kTables = make_tables();

// add_rounds() extends a sum over as many bytes as fill complete rounds, and removes them from `bytes`.
#if defined(__PCLMUL__)
constexpr uint64_t power_of_x(int exponent) {
  uint64_t power = kOne;
  for (int i = 0; i < exponent; ++i) power = times_x(power);
  return power;
}
template <int Exponent>
constexpr uint64_t power_of = power_of_x(Exponent);

// The factors that extend the halves of a 16-byte polynomial over Bits zero bits.
template <int Bits>
__m128i carrying() {
  return _mm_set_epi64x(static_cast<int64_t>(power_of<Bits - 1>), static_cast<int64_t>(power_of<Bits + 63>));
}

// Extends a 16-byte polynomial, highest powers first, over Bits zero bits. The result is congruent to the
// extended polynomial modulo the CRC's polynomial, and still 16 bytes long. A carry-less product of reflected
// words has one power of x too many, which the factors account for.
template <int Bits>
__m128i carried(__m128i a) {
  const __m128i powers = carrying<Bits>();
  return _mm_xor_si128(_mm_clmulepi64_si128(a, powers, 0x00), _mm_clmulepi64_si128(a, powers, 0x11));
}

// The sum of consecutive 16-byte words.
uint64_t sum_of(const __m128i* vectors, size_t count) {
  __m128i all = vectors[0];
  for (size_t i = 1; i < count; ++i) all = _mm_xor_si128(carried<128>(all), vectors[i]);
  return crc64_add(0, std::as_bytes(std::span(&all, 1)));
}

#if defined(__VPCLMULQDQ__) && defined(__AVX512F__)
// Four 16-byte polynomials side by side.
using Vector = __m512i;
template <int Bits>
Vector carried(Vector a) {
  const Vector powers = _mm512_broadcast_i32x4(carrying<Bits>());
  return _mm512_xor_si512(_mm512_clmulepi64_epi128(a, powers, 0x00),
                          _mm512_clmulepi64_epi128(a, powers, 0x11));
}
Vector sum_of_both(Vector a, Vector b) { return _mm512_xor_si512(a, b); }
Vector begin_with(uint64_t sum) {
  return _mm512_zextsi128_si512(_mm_cvtsi64_si128(static_cast<int64_t>(sum)));
}
#else
using Vector = __m128i;
Vector sum_of_both(Vector a, Vector b) { return _mm_xor_si128(a, b); }
Vector begin_with(uint64_t sum) { return _mm_cvtsi64_si128(static_cast<int64_t>(sum)); }
#endif

uint64_t add_rounds(uint64_t sum, std::span<const std::byte>& bytes) {
  constexpr size_t kVectors = 4, kRound = kVectors * sizeof(Vector);
  if (bytes.size() < 2 * kRound) return sum;
  const auto load = [&](size_t i) {
    Vector vector;
    std::memcpy(&vector, bytes.data() + i * sizeof(vector), sizeof(vector));
    return vector;
  };
  Vector vectors[kVectors];
  for (size_t i = 0; i < kVectors; ++i) vectors[i] = load(i);
  vectors[0] = sum_of_both(vectors[0], begin_with(sum));
  for (bytes = bytes.subspan(kRound); bytes.size() >= kRound; bytes = bytes.subspan(kRound))
    for (size_t i = 0; i < kVectors; ++i) vectors[i] = sum_of_both(carried<8 * kRound>(vectors[i]), load(i));
  constexpr size_t kParts = kRound / sizeof(__m128i);
  __m128i parts[kParts];
  std::memcpy(parts, vectors, kRound);
  return sum_of(parts, kParts);
}
#else
uint64_t add_rounds(uint64_t sum, std::span<const std::byte>&) { return sum; }
#endif

}  // namespace

uint64_t crc64_add(uint64_t sum, std::span<const std::byte> bytes) {
  sum = add_rounds(sum, bytes);
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, sizeof(word));
    word ^= sum;
    sum = 0;
    for (size_t k = 0; k < 8; ++k) sum ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; left > 0; --left, ++at) sum = (sum >> 8) ^ kTables[0][(sum ^ static_cast<uint64_t>(*at)) & 0xff];
  return sum;
}

uint64_t crc64_carry(uint64_t sum, uint64_t zero_bytes) {
  for (size_t i = 0; zero_bytes != 0; ++i, zero_bytes >>= 1)
    if (zero_bytes & 1) sum = product(sum, kPowers[i]);
  return sum;
}

uint64_t crc64_finish(uint64_t sum, uint64_t length) { return ~(sum ^ crc64_carry(~uint64_t{0}, length)); }

uint64_t crc64(std::span<const std::byte> text) { return crc64_finish(crc64_add(0, text), text.size()); }

}  // namespace flatshard
