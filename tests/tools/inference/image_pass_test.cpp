#include "tools/inference/image_pass.h"

#include <algorithm>
#include <cmath>

#include "model/config.h"
#include "source_dir.h"
#include "tests/golden.h"
#include "tests/test.h"
#include "tools/inference/continuation.h"

using namespace flatshard;

namespace {

using Tokens = std::vector<int32_t>;

// Logits of size 10 after sums in another order; greedy tokens are further apart (image_answers.py).
constexpr double kTolerance = 1e-3;

struct Answer {
  std::string folder;
  Tokens prompt, greedy;
  std::vector<double> logits;
  double margin;
};

Answer answer_of(const std::string& family) {
  const auto expected = test::load_golden("image_answers/" + family + "/expected");
  const auto ids = [&](const char* of) {
    const std::vector<double>& values = expected.at(of).values;
    return Tokens(values.begin(), values.end());
  };
  return {.folder = str(kSourceDir, "/tests/golden/image_answers/", family),
          .prompt = ids("prompt"),
          .greedy = ids("greedy"),
          .logits = expected.at("logits").values,
          .margin = expected.at("margin").values.front()};
}

PromptImages images_of(const std::string& folder) {
  const std::string pictures = str(kSourceDir, "/tests/golden/images/");
  Conversation conversation;
  conversation.add("user", "", {{.path = pictures + "rgb.jpeg"}, {.path = pictures + "orientation_6.jpeg"}});
  find_image_sizes(conversation);
  return read_images(read_image_input(folder).value(), conversation.images);
}

Tokens continued(Generator& generator, int64_t count) {
  return continue_text(generator, count, Sampler({.temperature = 0}), {}, {}).tokens;
}

}  // namespace

TEST_CASE("greedy answers about images are those of transformers, in every family that reads images") {
  for (const Family& f : families()) {
    if (!f.connector) continue;
    CAPTURE(f.name);
    const Answer answer = answer_of(f.name);
    REQUIRE(answer.greedy.size() == 30);
    CHECK(answer.margin > 20 * kTolerance);
    Generator generator(answer.folder,
                        {.capacity = static_cast<int64_t>(answer.prompt.size() + answer.greedy.size())});
    generator.read_prompt(0, answer.prompt, images_of(answer.folder));
    double error = 0;
    for (size_t i = 0; i < answer.logits.size(); ++i)
      error = std::max(error, std::abs(generator.logits(0)[i] - answer.logits[i]));
    CHECK(error < kTolerance);
    CHECK(continued(generator, 30) == answer.greedy);
  }
}

TEST_CASE("an answer about images goes on wherever its text is read from") {
  for (const std::string family : {"idefics2", "qwen2_5_vl"}) {
    CAPTURE(family);
    const Answer answer = answer_of(family);
    const PromptImages images = images_of(answer.folder);
    Generator generator(answer.folder, {.capacity = 100});
    Tokens text = answer.prompt;
    text.insert(text.end(), answer.greedy.begin(), answer.greedy.begin() + 12);
    for (const size_t kept : {answer.prompt.size(), text.size(), answer.prompt.size() - 2, size_t{1}}) {
      CAPTURE(kept);
      generator.read_changes(0, {text.data(), kept}, kept < 6 ? PromptImages{} : images);
      generator.read_changes(0, text, images);
      CHECK(continued(generator, 18) == Tokens(answer.greedy.begin() + 12, answer.greedy.end()));
    }
  }
}

TEST_CASE("an image that changes is read again, though its tokens stay the same") {
  for (const std::string family : {"idefics3", "qwen2_vl"}) {
    CAPTURE(family);
    const Answer answer = answer_of(family);
    const PromptImages before = images_of(answer.folder);
    PromptImages after = before;
    after.patches.back() += 5;
    Generator fresh(answer.folder, {.capacity = 150}), generator(answer.folder, {.capacity = 150});
    fresh.read_prompt(0, answer.prompt, after);
    generator.read_prompt(0, answer.prompt, before);
    generator.read_changes(0, answer.prompt, after);
    double error = 0, change = 0;
    for (size_t i = 0; i < answer.logits.size(); ++i) {
      error = std::max<double>(error, std::abs(generator.logits(0)[i] - fresh.logits(0)[i]));
      change = std::max(change, std::abs(fresh.logits(0)[i] - answer.logits[i]));
    }
    CHECK(error < kTolerance);
    CHECK(change > 20 * kTolerance);
  }
}

TEST_CASE("a prompt that ends with an image is read again from its last token") {
  for (const std::string family : {"idefics3", "qwen2_5_vl"}) {
    CAPTURE(family);
    const Answer answer = answer_of(family);
    const int32_t image_token = read_image_input(answer.folder)->token;
    Tokens prompt = answer.prompt;
    while (prompt.back() != image_token) prompt.pop_back();
    const PromptImages images = images_of(answer.folder);
    Generator generator(answer.folder, {.capacity = 150});
    generator.read_prompt(0, prompt, images);
    const std::vector<float> once(generator.logits(0).begin(), generator.logits(0).end());
    generator.read_changes(0, prompt, images);
    double error = 0;
    for (size_t i = 0; i < once.size(); ++i)
      error = std::max<double>(error, std::abs(generator.logits(0)[i] - once[i]));
    CHECK(error < kTolerance);
  }
}

TEST_CASE("a text with or without images is continued in a batch as it is alone") {
  for (const std::string family : {"smolvlm", "qwen2_vl"}) {
    CAPTURE(family);
    const Answer answer = answer_of(family);
    const Sampler greedy({.temperature = 0});
    const std::vector<Request> requests{{.prompt = {1, 2, 3}, .most_tokens = 40, .sampler = greedy},
                                        {.prompt = answer.prompt,
                                         .most_tokens = 30,
                                         .sampler = greedy,
                                         .images = [&] { return images_of(answer.folder); }},
                                        {.prompt = {5}, .most_tokens = 40, .sampler = greedy}};
    Generator one(answer.folder, {.capacity = 150}), two(answer.folder, {.texts = 2, .capacity = 150});
    const auto alone = continue_prompts(one, requests, {}), together = continue_prompts(two, requests, {});
    CHECK(alone[1].tokens == answer.greedy);
    for (size_t i = 0; i < requests.size(); ++i) CHECK(together[i].tokens == alone[i].tokens);
  }
}
