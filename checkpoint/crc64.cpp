#include "checkpoint/crc64.h"

#include <array>
#include <cstring>

namespace flatshard {
namespace {

// Polynomials over two elements, modulo that of ECMA-182, the lowest power in the highest bit.
constexpr uint64_t kModulus = 0xc96c5795d7870f42, kOne = uint64_t{1} << 63, kX8 = kOne >> 8;

constexpr uint64_t times_x(uint64_t a) { return (a >> 1) ^ (a & 1 ? kModulus : 0); }

uint64_t product(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  for (uint64_t bit = kOne; bit != 0; bit >>= 1, b = times_x(b))
    if (a & bit) sum ^= b;
  return sum;
}

// kTables[k][byte]: what a byte adds that has k bytes behind it.
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

}  // namespace

uint64_t crc64_add(uint64_t sum, std::span<const std::byte> bytes) {
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
  for (uint64_t power = kX8; zero_bytes != 0; zero_bytes >>= 1, power = product(power, power))
    if (zero_bytes & 1) sum = product(sum, power);
  return sum;
}

uint64_t crc64_finish(uint64_t sum, uint64_t length) { return ~(sum ^ crc64_carry(~uint64_t{0}, length)); }

uint64_t crc64(std::span<const std::byte> text) { return crc64_finish(crc64_add(0, text), text.size()); }

}  // namespace flatshard
