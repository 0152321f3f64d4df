#include "train/tools/generator.h"

#include <filesystem>
#include <fstream>
#include <numeric>

#include "runtime/memory.h"
#include "tests/process.h"
#include "tests/small_model.h"
#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kPositions = 400;

// The folder of a small random model.
std::string folder_of(const std::string& family, int64_t vocab = 40) {
  StreamGroup streams(Device::cpu());
  ModelConfig config = test::small_model(family, vocab);
  config.max_positions = kPositions;
  const ResidentModel model(config, DType::f32, streams.add("compute"));
  test::fill_random(model);
  const std::string folder = "generator_test_" + family;
  test::write_model_folder(folder, model);
  return folder;
}

Tokens some_tokens(int64_t count) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((i * i + 3 * i) % 40));
  return tokens;
}

Tokens continued(Generator& generator, int64_t count, const SamplerOptions& options) {
  Tokens tokens;
  generator.generate(count, Sampler(options), [&](int32_t token) { tokens.push_back(token); });
  return tokens;
}

void write_text(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("generation continues any prefix of its own text identically, in every family") {
  for (const Family& f : families())
    for (const int64_t prompt_tokens : {1, 7, 256, 300}) {  // longer than one forward pass takes
      CAPTURE(f.name);
      CAPTURE(prompt_tokens);
      Generator generator(folder_of(f.name), DType::f32, prompt_tokens + 12);
      Tokens text = some_tokens(prompt_tokens);
      generator.read_prompt(text);
      const Tokens all = continued(generator, 12, {.seed = 5});
      text.insert(text.end(), all.begin(), all.begin() + 5);
      generator.read_prompt(text);
      CHECK(continued(generator, 7, {.seed = 5}) == Tokens(all.begin() + 5, all.end()));
    }
}

TEST_CASE("the same prompt and seed give the same tokens, whatever was generated before") {
  Generator generator(folder_of("qwen3"), DType::bf16, 60);
  generator.read_prompt(some_tokens(20));
  const Tokens first = continued(generator, 40, {.seed = 1}), second = continued(generator, 40, {.seed = 2});
  CHECK(first.size() == 40);
  CHECK(first != second);
  CHECK(continued(generator, 40, {.seed = 1}) == first);
  CHECK(continued(generator, 10, {.seed = 2}) == Tokens(second.begin(), second.begin() + 10));
  Generator other("generator_test_qwen3", DType::bf16, kPositions);
  other.read_prompt(some_tokens(20));
  CHECK(continued(other, 40, {.seed = 1}) == first);
}

TEST_CASE("generation allocates nothing once its model is loaded") {
  Generator generator(folder_of("llama"), DType::f32, 300);
  const MemoryCounters before = memory_counters();
  generator.read_prompt(some_tokens(270));
  continued(generator, 30, {});
  CHECK(memory_counters().allocations == before.allocations);
  CHECK(generator.memory_bytes() > 0);
}

TEST_CASE("texts beyond the capacity are refused with the numbers") {
  const std::string folder = folder_of("gpt2");
  CHECK(test::error_of([&] { Generator(folder, DType::f32, kPositions + 1); }) ==
        str("prompt and continuation have 401 tokens, but ", folder, "/config.json has positions for 400"));
  Generator generator(folder, DType::f32, 10);
  CHECK(test::error_of([&] { continued(generator, 1, {}); }) == "there is no prompt to continue");
  CHECK(test::error_of([&] { generator.read_prompt({}); }) ==
        "the prompt is empty, must have at least one token");
  CHECK(test::error_of([&] { generator.read_prompt(some_tokens(11)); }) ==
        "a text of 11 tokens exceeds the capacity of 10 tokens");
  generator.read_prompt(some_tokens(6));
  CHECK(test::error_of([&] { continued(generator, 5, {}); }) ==
        "a prompt of 6 tokens and 5 more exceed the capacity of 10 tokens");
  CHECK(continued(generator, 4, {}).size() == 4);
  CHECK(test::error_of([&] { generator.read_prompt(Tokens{40}); }).find("token 40") != std::string::npos);
}

TEST_CASE("a vocabulary of 256 is bytes, any other is numbers") {
  CHECK(tokens_of_text("a\n\xff", 256) == Tokens{97, 10, 255});
  CHECK(text_of_token(255, 256) == "\xff");
  CHECK(tokens_of_text(" 3 17\n0 ", 40) == Tokens{3, 17, 0});
  CHECK(text_of_token(17, 40) == "17 ");
  for (const char* text : {"1 two", "1 40", "-1", "3x", "99999999999"})
    CHECK(test::error_of([&] {
            tokens_of_text(text, 40);
          }).ends_with("is not a token number: the vocabulary is 40, so tokens are 0 to 39"));
}

TEST_CASE("a model folder is found by its path, by its run, and as the last run") {
  write_text("find/runs/tiny/model/config.json", "{}");
  write_text("find/runs/latest", "runs/tiny\n");
  fs::create_directories("find/a/b");
  const auto same = [](const std::string& a, const fs::path& b) { return fs::equivalent(a, b); };
  const fs::path model = "find/runs/tiny/model";
  CHECK(find_model_folder("find/runs/tiny/model") == "find/runs/tiny/model");
  CHECK(find_model_folder("find/runs/tiny") == "find/runs/tiny/model");
  CHECK(same(find_model_folder("", "find"), model));
  CHECK(same(find_model_folder("", "find/a/b"), model));
  write_text("find/runs/latest", fs::absolute("find/runs/tiny").string());
  CHECK(same(find_model_folder("", "find/a"), model));
}

TEST_CASE("a folder without a model is named") {
  write_text("lost/runs/latest", "runs/gone\n");
  CHECK(test::error_of([] { find_model_folder("no/such"); }) == "no/such: no such folder");
  CHECK(test::error_of([] { find_model_folder("lost"); }) ==
        "lost: neither a model folder (no config.json) nor a run folder (no model/config.json)");
  CHECK(test::error_of([] { find_model_folder("", "lost"); }).ends_with("lost/runs/gone: no such folder"));
  write_text("lost/runs/latest", "");
  CHECK(test::error_of([] {
          find_model_folder("", "lost");
        }).ends_with("lost/runs/latest: is empty, must contain the path of a run folder"));
  CHECK(test::error_of([] { find_model_folder("", "/"); }) ==
        "no folder is given, and there is no runs/latest in / or above it: train a model first, or give its "
        "folder");
}

TEST_CASE("generate requires a prompt unless tokens are bytes") {
  const std::string folder = folder_of("llama"), bytes = folder_of("mistral", 256);
  const test::Finished numbers = test::run_command("@generate " + folder + " --max-tokens 2");
  CHECK(numbers.exit_code == 1);
  CHECK(numbers.output ==
        "generate: --prompt is missing: the vocabulary is 40, so give token numbers, such as "
        "--prompt \"1 15 "
        "7\"\n");
  CHECK(test::run_command("@generate " + bytes + " --max-tokens 2").exit_code == 0);
  const test::Finished greedy =
      test::run_command("@generate " + folder + " --max-tokens 2 --prompt '1 2' --greedy --temperature 0");
  CHECK_MESSAGE(greedy.exit_code == 0, greedy.output);
}
