#include "bench/hot_loop.h"

#include <span>
#include <vector>

#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;

namespace {

constexpr uint16_t kOther = 0x223, kP0 = 0, kNotP0 = 8;

// Machine code, an instruction after the other.
struct Code {
  std::vector<uint64_t> words;

  int64_t size() const { return static_cast<int64_t>(words.size() / 2); }
  void add(uint16_t opcode, int count = 1, uint16_t predicate = kAlways) {
    for (int i = 0; i < count; ++i) words.insert(words.end(), {opcode | uint64_t{predicate} << 12, 0});
  }
  // A branch to the instruction `target`, under two predicates.
  void branch(int64_t target, uint16_t predicate = kAlways, uint16_t second = kAlways) {
    const int64_t distance = 4 * (target - size() - 1);
    const auto upper = static_cast<uint64_t>(distance >> 8);
    words.push_back(kBranch | uint64_t{predicate} << 12 | static_cast<uint64_t>(distance & 0xff) << 16 |
                    upper << 34);
    words.push_back((upper >> 30 & 0x3ffff) | uint64_t{second} << 23);
  }
  HotLoop loop() const { return hot_loop(std::as_bytes(std::span(words))); }
};

// 10 instructions, then a loop of 4 products, 2 of their waits, and a mask of 100 instructions under a
// predicate, which a branch skips, or not.
Code loop_with_mask(bool skips) {
  Code code;
  code.add(kOther, 10);
  code.add(kHgmma[0], 2);
  code.add(kProductSync);
  if (skips) code.branch(code.size() + 101, kP0);
  code.add(kOther, 100, kP0);
  code.add(kHgmma[1], 2);
  code.add(kProductSync);
  code.branch(10, kNotP0);
  code.add(kOther, 300);
  return code;
}

}  // namespace

TEST_CASE("the hot loop is the shortest way through the smallest loop with the products") {
  const HotLoop without = loop_with_mask(false).loop(), with = loop_with_mask(true).loop();
  CHECK(without.instructions == 107);
  CHECK(without.predicated == 100);
  CHECK(with.instructions == 8);
  CHECK(with.predicated == 0);
  for (const HotLoop& loop : {without, with}) {
    CHECK(loop.products == 4);
    CHECK(loop.product_syncs == 2);
  }
}

TEST_CASE("a hot loop has an outer loop, waits that repeat, and code that no iteration reaches") {
  Code code;
  code.add(kOther, 3);
  code.add(kOther);
  code.branch(3, kP0);  // waits in place
  code.add(kHmma, 8);
  code.branch(code.size() + 6);
  code.add(kOther, 5);  // no branch leads here
  code.branch(code.size() + 3, kAlways, kP0);
  code.add(kOther, 2);
  code.branch(3, kNotP0);
  code.add(kHmma, 8);
  code.branch(0, kP0);
  const HotLoop loop = code.loop();
  CHECK(loop.instructions == 2 + 8 + 1 + 1 + 1);
  CHECK(loop.predicated == 0);
  CHECK(loop.products == 8);
}

TEST_CASE("a kernel without products, or without a loop around them, has no hot loop") {
  Code straight, useless;
  straight.add(kHgmma[0], 4);
  straight.branch(straight.size() + 1, kP0);
  useless.add(kOther, 4);
  useless.branch(0, kP0);
  CHECK(straight.loop().instructions == 0);
  CHECK(useless.loop().instructions == 0);
  CHECK(hot_loop({}).instructions == 0);
}
