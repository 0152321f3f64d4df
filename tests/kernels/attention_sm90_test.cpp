// Attention by the instructions of sm_90. It runs on the PTX machine in ptx_vm_tests, and on a GPU in
// flatshard_tests.

#include "kernels/attention_sm90.h"

#include <algorithm>
#include <cmath>

#include "bench/kernels/attention_setting.h"
#include "kernels/attention_order.h"
#include "tests/kernels/outputs.h"
#include "tests/kernels/random_draw.h"
#include "tests/ptx_vm/every_order.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::bench;
using namespace flatshard::ptx_vm;

namespace {

using test::below;
using test::Random;

constexpr int kSettings = 24;
constexpr int64_t kMostRows = 700;
constexpr double kMostProducts = 3e7;  // of a setting, so that the PTX machine takes about a second

struct Drawn {
  DType dtype;
  AttentionSetting setting;
};

template <class T>
T one_of(Random& random, std::initializer_list<T> all) {
  return *(all.begin() + below(random, static_cast<int64_t>(all.size())));
}

// Around the edges of tiles, or anything.
int64_t length(Random& random) {
  if (below(random, 3) == 0) return below(random, kMostRows) + 1;
  return std::max<int64_t>(
      1, one_of<int64_t>(random, {1, 64, 128, 192, 256, 384, 512, 640}) + below(random, 3) - 1);
}

double products(const AttentionSetting& s) {
  double pairs = 0;
  for (size_t i = 0; i < s.queries.size(); ++i)
    pairs += static_cast<double>(s.queries[i]) * static_cast<double>(s.key_lengths()[i]);
  return pairs * static_cast<double>(s.Hq * s.D);
}

Drawn draw(Random& random) {
  for (;;) {
    Drawn drawn{one_of(random, {DType::bf16, DType::f16}), {}};
    AttentionSetting& s = drawn.setting;
    int64_t rows = 0;
    for (int64_t documents = below(random, 4) + 1; documents > 0; --documents) {
      s.queries.push_back(below(random, 8) == 0 ? 0 : length(random));
      rows += s.queries.back();
    }
    s.Hkv = below(random, 2) + 1;
    s.Hq = s.Hkv * one_of<int64_t>(random, {1, 2, 3, 4, 7, 8, 16});
    s.D = one_of<int64_t>(random, {8, 64, 64, 72, 80, 96, 128, 128, 136, 256});
    s.causal = below(random, 4) > 0;
    if (s.causal && below(random, 3) == 0) s.window = length(random);
    if (below(random, 4) == 0) s.softcap = 1;
    s.packed = below(random, 3) == 0;
    if (!s.packed && below(random, 3) == 0)
      for (const int64_t queries : s.queries)
        s.keys.push_back(s.causal ? queries + below(random, 130) : below(random, 8) > 0 ? length(random) : 0);
    if (rows > 0 && rows <= kMostRows && products(s) <= kMostProducts) return drawn;
  }
}

std::vector<Case> both(const Drawn& d) {
  return {forward_case(d.dtype, d.setting), backward_case(d.dtype, d.setting)};
}

// A document of 2100 queries, which visit few tiles of keys.
AttentionSetting long_document(int64_t window) {
  return {.queries = {2100}, .Hq = 1, .Hkv = 1, .D = 64, .window = window};
}

void compare_with_cpu(const Case& c, const Values& expected) {
  CAPTURE(label(c));
  for (const auto& [name, values] : test::output_values(c, Device::cuda(0))) {
    CAPTURE(name);
    CHECK(max_error(values, expected.at(name)) <= tolerance(c));
  }
}

// A setting that the one pass supports. Queries before the first key attend to none.
Drawn draw_one_pass(Random& random) {
  for (;;) {
    Drawn drawn = draw(random);
    AttentionSetting& s = drawn.setting;
    if (!s.causal || s.D > 128) continue;
    s.D = one_of<int64_t>(random, {8, 64, 64, 104, 128, 128});
    s.softcap = 0;
    s.one_pass = true;
    if (s.own_keys() && below(random, 2) == 0)
      for (int64_t& keys : s.keys) keys = below(random, kMostRows);
    if (products(s) <= kMostProducts) return drawn;
  }
}

std::vector<std::vector<unsigned char>> bytes_on_gpu(const Case& c) {
  return test::output_bytes(c, {.device = Device::cuda(0)});
}

// The bits of a case do not depend on the order: every one, or one of each schedule.
void check_orders(const Case& c, bool every_order) {
  CAPTURE(label(c));
  const auto expected = bytes_on_gpu(c);
  const auto compare = [&] { CHECK(bytes_on_gpu(c) == expected); };
  if (every_order)
    for_every_order(compare);
  else
    for (const int order : {0, 5, 10, 15}) in_some_order(order, compare);
  expect_no_bank_conflicts([&] { bytes_on_gpu(c); });
}

void check_orders_of_heads(int64_t D, bool every_order) {
  for (const Case& c : both({DType::bf16, {.queries = {150, 290}, .Hq = 2, .Hkv = 1, .D = D, .window = 200}}))
    check_orders(c, every_order);
}

Case one_pass_of_heads(int64_t D) {
  return backward_case(DType::bf16,
                       {.queries = {150, 400}, .Hq = 2, .Hkv = 1, .D = D, .window = 310, .one_pass = true});
}

void match_drawn_settings(uint64_t seed, int settings) {
  Random random(seed);
  for (int i = 0; i < settings; ++i)
    for (const Case& c : both(draw(random))) {
      const Values expected = test::output_values(c, Device::cpu());
      in_some_order(i, [&] { compare_with_cpu(c, expected); });
    }
}

void match_drawn_settings_of_one_pass(uint64_t seed, int settings) {
  Random random(seed);
  for (int i = 0; i < settings; ++i) {
    const Drawn d = draw_one_pass(random);
    const Case c = backward_case(d.dtype, d.setting);
    const Values expected = test::output_values(c, Device::cpu());
    in_some_order(i, [&] { compare_with_cpu(c, expected); });
  }
}

}  // namespace

TEST_CASE("attention on sm_90 matches the CPU for any lengths, documents, masks and heads" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0 || !cuda::has_sm90()) return test::skip("no GPU of sm_90");
  match_drawn_settings(1, kSettings);
}

TEST_CASE("attention on sm_90 finds the blocks of more documents than a warp has lanes" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0 || !cuda::has_sm90()) return test::skip("no GPU of sm_90");
  for (const bool causal : {false, true}) {
    Drawn d{DType::bf16, {.queries = {}, .Hq = 1, .Hkv = 1, .D = 8, .causal = causal}};
    for (int64_t i = 0; i < 70; ++i) d.setting.queries.push_back(i == 50 ? 300 : i % 4);
    for (const Case& c : both(d)) compare_with_cpu(c, test::output_values(c, Device::cpu()));
  }
}

// So many that blocks are in the order of documents (attention_order.h): also in f32, which takes the kernels
// of all GPUs, and in one pass, whose blocks wait for others.
TEST_CASE("attention finds the blocks of more documents than it sorts" * doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0 || !cuda::has_sm90()) return test::skip("no GPU of sm_90");
  constexpr int64_t kDocuments = cuda::BlockOrder::kMostSorted + 12;
  AttentionSetting s{.queries = {}, .Hq = 2, .Hkv = 1, .D = 64};
  for (int64_t i = 0; i < kDocuments; ++i)
    s.queries.push_back(i == 50 || i == 130 ? 300 : i % 8 == 0 ? i % 5 : 0);
  AttentionSetting one_pass = s;
  one_pass.one_pass = true;
  std::vector<Case> all = both({DType::bf16, s});
  all.push_back(backward_case(DType::bf16, one_pass));
  for (const Case& c : both({DType::f32, s})) all.push_back(c);
  for (size_t i = 0; i < all.size(); ++i) {
    const Values expected = test::output_values(all[i], Device::cpu());
    in_some_order(static_cast<int>(i) * 5, [&] { compare_with_cpu(all[i], expected); });
  }
}

// The blocks of long documents with heads of 64 have 192 queries, others 128.
TEST_CASE("attention on sm_90 matches the CPU for long documents" * doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0 || !cuda::has_sm90()) return test::skip("no GPU of sm_90");
  for (const int64_t window : {1, 150, 300}) {
    const Case c = forward_case(window == 150 ? DType::f16 : DType::bf16, long_document(window));
    const Values expected = test::output_values(c, Device::cpu());
    in_some_order(static_cast<int>(window), [&] { compare_with_cpu(c, expected); });
  }
}

TEST_CASE("attention on sm_90 gives the same bits in every order, without bank conflicts" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0 || !cuda::has_sm90()) return test::skip("no GPU of sm_90");
  // Heads of other sizes are instances of the same code: they run in one order for each schedule.
  for (const int64_t D : {64, 96, 128, 256}) check_orders_of_heads(D, D == 64);
  check_orders(forward_case(DType::bf16, long_document(150)), false);
}

TEST_CASE("attention on sm_90 gives heads of any size and long documents the same bits in every order" *
          doctest::test_suite("nightly") * doctest::skip()) {
  if (cuda_device_count() == 0 || !cuda::has_sm90()) return test::skip("no GPU of sm_90");
  for (const int64_t D : {96, 128, 256}) check_orders_of_heads(D, true);
  check_orders(one_pass_of_heads(128), true);
  check_orders(forward_case(DType::bf16, long_document(150)), true);
}

TEST_CASE("300 drawn settings of attention on sm_90 match the CPU" * doctest::test_suite("nightly") *
          doctest::skip()) {
  if (cuda_device_count() == 0 || !cuda::has_sm90()) return test::skip("no GPU of sm_90");
  match_drawn_settings(3, 300);
  match_drawn_settings_of_one_pass(4, 300);
}

TEST_CASE("attention in one pass matches the CPU for any lengths, documents, windows and groups" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0 || !cuda::has_sm90()) return test::skip("no GPU of sm_90");
  match_drawn_settings_of_one_pass(2, kSettings);
}

TEST_CASE("attention in one pass gives the same bits in every order, without bank conflicts" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0 || !cuda::has_sm90()) return test::skip("no GPU of sm_90");
  for (const int64_t D : {64, 128}) check_orders(one_pass_of_heads(D), D == 64);
}

// Zero queries attend to all keys alike. The keys of block n have the size 2^(8 n), and so have its terms of
// dq, which fp32 adds to another sum in another order.
TEST_CASE("attention in one pass adds to dq block after block, whatever their sizes" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0 || !cuda::has_sm90()) return test::skip("no GPU of sm_90");
  constexpr int64_t kHeads = 2, D = 64, kBlock = 128;
  Case c =
      backward_case(DType::bf16, {.queries = {630}, .Hq = kHeads, .Hkv = kHeads, .D = D, .one_pass = true});
  for (Arg& arg : c.args) {
    if (arg.name == "q") arg.fill = [](int64_t, double) { return 0.0; };
    if (arg.name == "k")
      arg.fill = [](int64_t i, double unit) {
        return std::ldexp(unit - 0.5, static_cast<int>(8 * (i / (kHeads * D * kBlock))));
      };
  }
  const auto expected = bytes_on_gpu(c);
  for_every_order([&] { CHECK(bytes_on_gpu(c) == expected); });
}

TEST_CASE("attention in one pass gives a document the same bits beside any others" *
          doctest::test_suite("gpu")) {
  if (cuda_device_count() == 0 || !cuda::has_sm90()) return test::skip("no GPU of sm_90");
  constexpr int64_t kRows = 300, kHeads = 2;
  for (const int64_t D : {64, 128}) {
    const auto of_document = [&](const std::vector<int64_t>& lengths, int64_t first) {
      const int64_t row = kHeads * D;
      Case c = backward_case(DType::bf16,
                             {.queries = lengths, .Hq = kHeads, .Hkv = kHeads, .D = D, .one_pass = true});
      for (Arg& arg : c.args)
        if (arg.role == Role::input)
          arg.fill = [=](int64_t i, double) {
            return static_cast<double>((i - first * row) * 37 % 101) / 50 - 1;
          };
      Setup setup(c, {.device = Device::cuda(0)});
      setup.run();
      std::vector<std::vector<double>> gradients;
      for (const char* name : {"dq", "dk", "dv"}) {
        const std::vector<double> all = setup.values(name);
        gradients.emplace_back(all.begin() + first * row, all.begin() + (first + kRows) * row);
      }
      return gradients;
    };
    const auto alone = of_document({kRows}, 0);
    CHECK(of_document({70, kRows}, 70) == alone);
    CHECK(of_document({kRows, 0, 1, 260}, 0) == alone);
  }
}
