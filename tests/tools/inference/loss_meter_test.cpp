#include "tools/inference/loss_meter.h"

#include <cmath>

#include "tests/test.h"
#include "tests/tools/inference/talking_model.h"
#include "tools/inference/generator.h"

using namespace flatshard;

namespace {

using Tokens = std::vector<int32_t>;

Tokens some_tokens(int64_t count, int64_t salt) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((i * i + salt * i + salt) % 98));
  return tokens;
}

std::vector<LossWindow> windows_of(const Tokens& tokens, const std::vector<uint8_t>& trained,
                                   int64_t seq_len) {
  std::vector<LossWindow> windows;
  cut_windows({.tokens = tokens, .trained = trained}, seq_len,
              [&](LossWindow window) { windows.push_back(std::move(window)); });
  return windows;
}

// The sum of -ln p of all tokens but the first, from the logits of generation.
double sum_by_generation(Generator& generator, const Tokens& tokens) {
  generator.read_prompt(0, {tokens.data(), 1});
  double total = 0;
  for (size_t i = 1; i < tokens.size(); ++i) {
    double sum = 0;
    for (const float z : generator.logits(0)) sum += std::exp(static_cast<double>(z));
    total += std::log(sum) - static_cast<double>(generator.logits(0)[static_cast<size_t>(tokens[i])]);
    generator.append({{NextToken{0, tokens[i]}}});
  }
  return total;
}

}  // namespace

TEST_CASE("a document is cut into windows that share their border token") {
  const auto windows = windows_of({1, 2, 3, 4, 5, 6}, {1, 0, 1, 1, 0, 1}, 2);
  REQUIRE(windows.size() == 3);
  CHECK(windows[0].tokens == Tokens{1, 2, 3});
  CHECK(windows[1].tokens == Tokens{3, 4, 5});
  CHECK(windows[2].tokens == Tokens{5, 6});
  CHECK(windows[0].trained == std::vector<uint8_t>{1, 0, 1});
  CHECK(windows[2].trained == std::vector<uint8_t>{0, 1});
  CHECK(windows_of({1}, {}, 2).empty());
  CHECK(windows_of({}, {}, 2).empty());
}

TEST_CASE("no image is cut into two windows") {
  const Tokens tokens{1, 2, 9, 9, 9, 3, 9, 9, 4, 5, 9};
  const auto cut = [&](int64_t seq_len) {
    LossDocument document{.tokens = tokens, .where = "a"};
    for (const auto& [begin, end] : {std::pair{2, 5}, {6, 8}, {10, 11}})
      document.images.push_back(
          {begin, end, [begin](PromptImages& images) { images.frames.push_back(begin); }});
    std::vector<std::string> windows;
    cut_windows(document, seq_len, [&](const LossWindow& window) {
      PromptImages images;
      for (const auto& append : window.images) append(images);
      std::string text = str(window.tokens.size(), " tokens, ", window.inputs, " read, images");
      for (size_t i = 1; i < images.frames.size(); ++i) text += str(' ', images.frames[i]);
      windows.push_back(text);
    });
    return windows;
  };
  using Texts = std::vector<std::string>;
  CHECK(cut(100) == Texts{"11 tokens, 11 read, images 2 6 10"});
  CHECK(cut(7) == Texts{"7 tokens, 6 read, images 2", "5 tokens, 5 read, images 6 10"});
  CHECK(cut(4) ==
        Texts{"3 tokens, 2 read, images", "5 tokens, 4 read, images 2", "5 tokens, 4 read, images 6"});
  CHECK(test::missing_from(test::error_of([&] { cut(2); }), {"a: an image has 3 tokens", "no window of 2"}) ==
        "");
}

TEST_CASE("the loss of a window is that of its tokens, whatever shares its pass") {
  const std::string folder = "loss_meter_model";
  test::write_talking_model(folder);
  LossMeter meter(folder, DType::f32, 40, Device::cpu());
  Generator generator(folder, {.capacity = 60});
  const Tokens a = some_tokens(11, 1), b = some_tokens(18, 5), c = some_tokens(14, 9);
  std::vector<LossWindow> windows;
  for (const Tokens& tokens : {a, b, c}) windows.push_back(windows_of(tokens, {}, 40).front());
  CHECK(meter.windows_of_pass(windows) == 3);
  const auto together = meter.measure(windows);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(meter.measure({{windows[i]}})[0] == together[i]);
    const LossSum sum = sum_of(windows[i], together[i]);
    CHECK(sum.targets == static_cast<double>(windows[i].tokens.size() - 1));
    CHECK(sum.sum == doctest::Approx(sum_by_generation(generator, windows[i].tokens)).epsilon(1e-4));
  }
  windows[1].trained.assign(windows[1].tokens.size(), 0);
  windows[1].trained[4] = 1;
  CHECK(meter.measure(windows)[1] == together[1]);
  CHECK(sum_of(windows[1], together[1]).targets == 1);
  CHECK(sum_of(windows[1], together[1]).sum == static_cast<double>(together[1][3]));
  windows.push_back(windows[0]);
  CHECK(meter.windows_of_pass(windows) == 3);
}
