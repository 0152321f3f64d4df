#include "bench/hot_loop.h"

#include <cstring>
#include <optional>
#include <vector>

namespace flatshard::bench {
namespace {

struct Instruction {
  uint64_t low, high;

  uint16_t opcode() const { return low & 0xfff; }
  uint16_t predicate() const { return low >> 12 & 0xf; }
  bool is_product() const { return opcode() == kHmma || opcode() == kHgmma[0] || opcode() == kHgmma[1]; }
  bool is_branch() const { return opcode() == kBranch; }
  // Whether a branch has no condition. Bits 82 to 91 hold others, such as a second predicate or divergence.
  bool always_branches() const { return predicate() == kAlways && (high >> 18 & 0x3ff) == kAlways << 5; }
  // The target, counted in instructions from the next one: 4 times the words in bits 16 to 23 and, above
  // them, in bits 34 to 81.
  int64_t distance() const {
    const uint64_t upper = high << 30 | low >> 34;  // 48 bits
    const auto words = static_cast<int64_t>(upper << 16) >> 8 | static_cast<int64_t>(low >> 16 & 0xff);
    return words * 4 / static_cast<int64_t>(kInstructionBytes);
  }
};

std::vector<Instruction> instructions_of(std::span<const std::byte> code) {
  std::vector<Instruction> all(code.size() / kInstructionBytes);
  std::memcpy(all.data(), code.data(), all.size() * kInstructionBytes);
  return all;
}

// Instructions [begin, end), of which the last one branches to the first.
struct Loop {
  size_t begin, end;
  size_t size() const { return end - begin; }
};

std::optional<Loop> smallest_loop(const std::vector<Instruction>& code) {
  constexpr double kShare = 0.45;   // a loop may have copies for its first or last iteration
  std::vector<size_t> products{0};  // before each instruction
  for (const Instruction& i : code) products.push_back(products.back() + i.is_product());
  std::optional<Loop> smallest;
  for (size_t at = 0; at < code.size(); ++at) {
    if (!code[at].is_branch() || code[at].distance() >= 0) continue;
    const int64_t begin = static_cast<int64_t>(at) + 1 + code[at].distance();
    if (begin < 0) continue;
    const Loop loop{static_cast<size_t>(begin), at + 1};
    const size_t inside = products[loop.end] - products[loop.begin];
    if (inside > 0 && static_cast<double>(inside) >= kShare * static_cast<double>(products.back()) &&
        (!smallest || loop.size() < smallest->size()))
      smallest = loop;
  }
  return smallest;
}

}  // namespace

HotLoop hot_loop(std::span<const std::byte> bytes) {
  const std::vector<Instruction> code = instructions_of(bytes);
  const std::optional<Loop> loop = smallest_loop(code);
  if (!loop) return {};
  // The best way to each instruction: most products, then fewest instructions. It never branches back.
  std::vector<std::optional<HotLoop>> before(loop->size() + 1);
  before[0].emplace();
  for (size_t at = loop->begin; at < loop->end; ++at) {
    if (!before[at - loop->begin]) continue;
    const Instruction& i = code[at];
    HotLoop way = *before[at - loop->begin];
    ++way.instructions;
    way.predicated += i.predicate() != kAlways && !i.is_branch();
    way.products += i.is_product();
    way.product_syncs += i.opcode() == kProductSync;
    const auto reach = [&](size_t next) {
      std::optional<HotLoop>& best = before[next - loop->begin];
      if (!best || way.products > best->products ||
          (way.products == best->products && way.instructions < best->instructions))
        best = way;
    };
    if (at + 1 == loop->end || !i.is_branch() || !i.always_branches()) reach(at + 1);
    if (i.is_branch() && i.distance() > 0)
      if (const size_t target = at + 1 + static_cast<size_t>(i.distance()); target < loop->end) reach(target);
  }
  return before.back().value_or(HotLoop{});
}

}  // namespace flatshard::bench
