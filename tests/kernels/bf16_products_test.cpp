// Both ways to multiply bf16 on the CPU, and the choice between them.

#include "kernels/bf16_products.h"

#include <array>

#include "bench/case.h"
#include "build_config.h"
#include "kernels/tile_product.h"
#include "tests/kernels/outputs.h"
#include "tests/test.h"

using namespace flatshard;
using bench::Case;

namespace {

constexpr std::array kWays{Bf16Products::native, Bf16Products::widened};

// The bf16 cases of ops that multiply matrices.
std::vector<Case> products() {
  std::vector<Case> all = bench::all_cases(bench::Scale::test);
  std::erase_if(all, [](const Case& c) {
    const bool multiplies = c.op == "gemm" || c.op.starts_with("attention") || c.op.starts_with("head") ||
                            c.op.starts_with("four_bit_product");
    return !multiplies || c.dtype != DType::bf16;
  });
  return all;
}

}  // namespace

TEST_CASE("bf16 is widened on processors without instructions for it, or whose products of pairs are slow") {
  constexpr auto kNative = Bf16Products::native, kWidened = Bf16Products::widened;
  const ProcessorKind sapphire_rapids{"GenuineIntel", 6, 143}, emerald_rapids{"GenuineIntel", 6, 207},
      cooper_lake{"GenuineIntel", 6, 85}, zen4{"AuthenticAMD", 25, 17}, other{};
  const auto choice = [](Bf16Instructions instructions, const ProcessorKind& processor) {
    return choose_bf16_products(instructions, processor);
  };
  for (const ProcessorKind& processor : {sapphire_rapids, emerald_rapids}) {
    CHECK(choice(Bf16Instructions::tiles, processor) == Bf16Choice{kNative, kWidened});
    CHECK(choice(Bf16Instructions::pairs, processor) == Bf16Choice{kWidened, kWidened});
  }
  for (const ProcessorKind& processor : {cooper_lake, zen4, other}) {
    CHECK(choice(Bf16Instructions::tiles, processor) == Bf16Choice{kNative, kNative});
    CHECK(choice(Bf16Instructions::pairs, processor) == Bf16Choice{kNative, kNative});
  }
  for (const ProcessorKind& processor : {sapphire_rapids, zen4, other})
    CHECK(choice(Bf16Instructions::none, processor) == Bf16Choice{kWidened, kWidened});
}

TEST_CASE("the description of a choice names what is widened") {
  CHECK(describe({Bf16Products::native, Bf16Products::native}) == "in bf16");
  CHECK(describe({Bf16Products::widened, Bf16Products::widened}) == "in f32, from widened operands");
  CHECK(describe({Bf16Products::native, Bf16Products::widened}) ==
        "in bf16; of attention in f32, from widened operands");
}

TEST_CASE("products of bf16 match their formulas in either way") {
  if (*kSanitizer != '\0') return test::skip("numeric derivatives take half an hour under a sanitizer");
  for (const Case& c : products())
    for (const Bf16Products way : kWays) {
      const ScopedBf16Products scope(way);
      CAPTURE(label(c));
      CAPTURE(describe(bf16_products()));
      CHECK(max_error(c) <= tolerance(c));
    }
}

TEST_CASE("a forced way is taken by the next product, though another was prepared before") {
  const std::vector<Case> all = products();
  const auto bytes = [](const Case& c, Bf16Products way) {
    const ScopedBf16Products scope(way);
    return test::output_bytes(c);
  };
  int64_t different = 0;
  for (const Case& c : all) {
    CAPTURE(label(c));
    const auto native = bytes(c, Bf16Products::native), widened = bytes(c, Bf16Products::widened);
    CHECK(bytes(c, Bf16Products::native) == native);
    CHECK(bytes(c, Bf16Products::widened) == widened);
    if (native != widened) ++different;
  }
  CHECK(all.size() > 100);
  if (tile::kPerWord<bf16> == 1)
    return test::skip("this build multiplies no pairs: its attention has one way");
  CHECK(different > 0);
}
