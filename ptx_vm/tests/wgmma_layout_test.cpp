// wgmma: the layout of its operands.

#include <set>

#include "ptx_vm/hw/fragments.h"
#include "ptx_vm/tests/wgmma_tile.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

TEST_CASE("a swizzle moves 16-byte chunks within their pattern of 8 rows") {
  CHECK(swizzled(Swizzle::bytes_128, 0x80) == 0x90);
  CHECK(swizzled(Swizzle::bytes_128, 0x490) == 0x480);
  CHECK(swizzled(Swizzle::bytes_64, 0x190) == 0x1a0);
  CHECK(swizzled(Swizzle::bytes_32, 0x80) == 0x90);
  CHECK(swizzled(Swizzle::none, 0x490) == 0x490);
  for (const Swizzle s : kSwizzles) {
    std::set<uint32_t> taken;
    for (uint32_t a = 0; a < pattern_bytes(s); ++a) {
      CHECK(swizzled(s, a) < pattern_bytes(s));
      CHECK(swizzled(s, a) % 16 == a % 16);
      taken.insert(swizzled(s, a));
    }
    CHECK(taken.size() == pattern_bytes(s));
  }
}

TEST_CASE("with the 128-byte swizzle, a column of 8 chunks covers all banks") {
  std::set<uint32_t> chunks;
  for (uint32_t row = 0; row < 8; ++row) chunks.insert(swizzled(Swizzle::bytes_128, row * 128 + 48) / 16 % 8);
  CHECK(chunks.size() == 8);
}

TEST_CASE("a matrix descriptor holds what was packed into it") {
  const MatrixDescriptor tile{.start = 0x400, .stride = 1024, .swizzle = Swizzle::bytes_128};
  CHECK(pack(tile) == 0x4000004000000040u);
  CHECK(begins_at_a_pattern(tile));
  for (const Swizzle s : kSwizzles) {
    const MatrixDescriptor m{
        .start = 0x3fff0, .leading = 0x12340, .stride = 0x2bcd0, .base_offset = 5, .swizzle = s};
    CHECK(unpack(pack(m)) == m);
  }
  CHECK(pack({.start = 0x10, .swizzle = Swizzle::bytes_64}) == 0x8000000000000001u);
  CHECK(pack({.start = 0x10, .swizzle = Swizzle::bytes_32}) == 0xc000000000000001u);
}

TEST_CASE("a matrix starts at a pattern or within the pattern's first row") {
  CHECK(begins_at_a_pattern({.start = 1024 + 96, .swizzle = Swizzle::bytes_128}));
  CHECK(!begins_at_a_pattern({.start = 512, .swizzle = Swizzle::bytes_128}));
  CHECK(begins_at_a_pattern({.start = 512, .swizzle = Swizzle::bytes_64}));
  CHECK(!begins_at_a_pattern({.start = 64, .swizzle = Swizzle::bytes_64}));
  CHECK(!begins_at_a_pattern({.start = 1024, .base_offset = 1, .swizzle = Swizzle::bytes_128}));
}

TEST_CASE("sixteen terms stay within a row of the pattern") {
  const auto at = [](uint32_t start) {
    return MatrixDescriptor{.start = start, .swizzle = Swizzle::bytes_128};
  };
  CHECK(stays_in_rows(at(96), false, 64));
  CHECK(!stays_in_rows(at(112), false, 64));
  CHECK(stays_in_rows(at(112), true, 8));
  CHECK(!stays_in_rows(at(32), true, 64));
  CHECK(stays_in_rows(at(0), true, 256));
  CHECK(stays_in_rows({.start = 16}, true, 64));
}

TEST_CASE("elements are where the layouts say") {
  // K runs first. Row 9, k 5 of a 128-byte tile: 1024 + 128 + 10, chunk 0 of row 1 becomes chunk 1.
  CHECK(address_k_major({.stride = 1024, .swizzle = Swizzle::bytes_128}, 9, 5) == 1024 + 128 + 10 + 16);
  // 64 bytes: row 5 is byte 320, in the pattern's third row of 128 bytes: 2; chunk 1 becomes chunk 3.
  CHECK(address_k_major({.stride = 512, .swizzle = Swizzle::bytes_64}, 5, 9) == 320 + 48 + 2);
  CHECK(address_k_major({.stride = 256, .swizzle = Swizzle::bytes_32}, 12, 8) == 256 + 128);
  CHECK(address_k_major({.leading = 2048, .stride = 128}, 10, 11) == 2048 + 128 + 32 + 6);
  // M or N runs first. Column 65, k 9: the second piece of 64 columns, the second piece of 8 k, row 1 of it.
  CHECK(address_mn_major({.leading = 4096, .stride = 1024, .swizzle = Swizzle::bytes_128}, 65, 9) ==
        4096 + 1024 + 128 + 2 + 16);
  CHECK(address_mn_major({.leading = 4096, .stride = 512, .swizzle = Swizzle::bytes_64}, 33, 2) ==
        4096 + 128 + 2 + 16);
  CHECK(address_mn_major({.leading = 4096, .stride = 256, .swizzle = Swizzle::bytes_32}, 16, 4) ==
        4096 + 128 + 16);
  CHECK(address_mn_major({.leading = 4096, .stride = 128}, 9, 10) == 4096 + 128 + 32 + 2);
}

TEST_CASE("elements of a tile do not overlap, and a packed tile has no holes") {
  for (const Swizzle s : kSwizzles)
    for (const bool transposed : {false, true}) {
      CAPTURE(row_bytes(s));
      CAPTURE(transposed);
      const MatrixDescriptor m = packed(s, transposed, 64);
      std::set<uint32_t> taken;
      for (uint32_t i = 0; i < 64; ++i)
        for (uint32_t k = 0; k < 16; ++k) taken.insert(element_address(m, transposed, i, k));
      CHECK(taken.size() == 64 * 16);
      // Rows of the pattern that are longer than 16 k hold the next k too.
      const uint32_t row = transposed || s == Swizzle::none ? 32 : row_bytes(s);
      CHECK(*taken.rbegin() < 64 * row);
    }
}

TEST_CASE("D(37, 19) of a warpgroup is value 9 of thread 85") {
  const FragmentPlace at = place_in_accumulator(37 % 16, 19);
  CHECK(37 / 16 * 32 + at.lane == 85);
  CHECK(at.reg == 9);
}
