#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "runtime/memory.h"
#include "source_dir.h"
#include "tests/golden.h"
#include "tests/process.h"
#include "tests/small_model.h"
#include "tests/test.h"
#include "tools/inference/continuation.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kPositions = 400;

// The folder of a small random model.
std::string folder_of(const std::string& family, int64_t vocab = 40) {
  StreamSet streams(Device::cpu());
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

// A continuation of one prompt by a generator for one text.
Tokens continued(Generator& generator, const Tokens& prompt, int64_t count, const SamplerOptions& options) {
  generator.read_prompt(0, prompt);
  return continue_text(generator, count, Sampler(options), {}, {}).tokens;
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
      Generator generator(folder_of(f.name), {.capacity = prompt_tokens + 12});
      Tokens text = some_tokens(prompt_tokens);
      const Tokens all = continued(generator, text, 12, {.seed = 5});
      text.insert(text.end(), all.begin(), all.begin() + 5);
      CHECK(continued(generator, text, 7, {.seed = 5}) == Tokens(all.begin() + 5, all.end()));
    }
}

TEST_CASE("greedy text from a folder of transformers is that of transformers") {
  for (const std::string name :
       {"gemma2",  "gemma3",     "phi3",       "olmo2",      "smollm3",   "smollm3_layers", "granite",
        "glm4",    "llama_yarn", "qwen3_yarn", "phi3_short", "phi3_long", "qwen3_moe",      "qwen2_moe",
        "mixtral", "olmoe",      "granitemoe", "glm4_moe",   "gpt_oss",   "gpt_oss_mxfp4"}) {
    CAPTURE(name);
    const std::string folder = str(kSourceDir, "/tests/golden/folders/", name);
    const auto expected = test::load_golden("folders/" + name + "/expected");
    const auto ids = [&](const char* of) {
      const std::vector<double>& values = expected.at(of).values;
      return Tokens(values.begin(), values.end());
    };
    const Tokens sequences = ids("tokens"), greedy = ids("greedy");
    CHECK(greedy.size() == 50);
    Generator generator(folder, {.capacity = 12 + 50});
    CHECK(continued(generator, Tokens(sequences.begin(), sequences.begin() + 12), 50, {.temperature = 0}) ==
          greedy);
  }
}

TEST_CASE("the same prompt and seed give the same tokens, whatever was generated before") {
  Generator generator(folder_of("qwen3"), {.dtype = DType::bf16, .capacity = 60});
  const Tokens prompt = some_tokens(20);
  const Tokens first = continued(generator, prompt, 40, {.seed = 1}),
               second = continued(generator, prompt, 40, {.seed = 2});
  CHECK(first.size() == 40);
  CHECK(first != second);
  CHECK(continued(generator, prompt, 40, {.seed = 1}) == first);
  CHECK(continued(generator, prompt, 10, {.seed = 2}) == Tokens(second.begin(), second.begin() + 10));
  Generator other(ModelSource("generator_test_qwen3"), {.dtype = DType::bf16, .capacity = kPositions});
  CHECK(continued(other, prompt, 40, {.seed = 1}) == first);
}

TEST_CASE(
    "prompts of different lengths have the same logits and tokens in a batch as alone, in every family") {
  for (const Family& f : families())
    for (const DType dtype : {DType::f32, DType::bf16}) {
      CAPTURE(f.name);
      CAPTURE(name_of(dtype));
      const std::string folder = folder_of(f.name);
      std::vector<Request> requests;
      for (const int64_t length : {3, 40, 1, 17, 9, 2, 33})
        requests.push_back({.prompt = some_tokens(length),
                            .most_tokens = 6 + length % 5,
                            .sampler = Sampler({.seed = static_cast<uint64_t>(length)})});
      Generator one(folder, {.dtype = dtype, .capacity = 60}),
          several(folder, {.dtype = dtype, .texts = 3, .capacity = 60}),
          all(folder, {.dtype = dtype, .texts = 7, .capacity = 50});
      const auto expected = continue_prompts(one, requests, {});
      for (Generator* generator : {&several, &all}) {
        const auto found = continue_prompts(*generator, requests, {});
        for (size_t i = 0; i < requests.size(); ++i) CHECK(found[i].tokens == expected[i].tokens);
      }
      // All texts are appended to in one pass.
      for (size_t i = 0; i < requests.size(); ++i)
        all.read_prompt(static_cast<int64_t>(i), requests[i].prompt);
      std::vector<NextToken> next;
      for (int64_t text = 0; text < 7; ++text) next.push_back({text, static_cast<int32_t>(text + 5)});
      all.append(next);
      for (const NextToken& n : next) {
        one.read_prompt(0, requests[static_cast<size_t>(n.text)].prompt);
        one.append({{NextToken{0, n.token}}});
        CHECK(std::ranges::equal(one.logits(0), all.logits(n.text)));
      }
    }
}

TEST_CASE("a continuation ends before an end token, and where its receiver says so") {
  Generator generator(folder_of("llama"), {.texts = 2, .capacity = 60});
  const Request request{.prompt = some_tokens(9), .most_tokens = 30, .sampler = Sampler({.seed = 3})};
  const Tokens all = continue_prompts(generator, {{request}}, {})[0].tokens;
  const Tokens ends{all[12], all[7]};
  const size_t length =
      static_cast<size_t>(std::find_first_of(all.begin(), all.end(), ends.begin(), ends.end()) - all.begin());
  for (const Continuation& c : continue_prompts(generator, {{request, request, request}}, ends)) {
    CHECK(c.ended);
    CHECK(c.tokens == Tokens(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(length)));
  }
  int taken = 0;
  const auto stopped =
      continue_prompts(generator, {{request}}, {}, [&](int64_t, int32_t) { return ++taken < 4; });
  CHECK(stopped[0].tokens == Tokens(all.begin(), all.begin() + 4));
  CHECK(!stopped[0].ended);
}

TEST_CASE("a changed text has the tokens of a new one, and reads only what changed") {
  for (const Family& f : families()) {
    CAPTURE(f.name);
    Generator generator(folder_of(f.name), {.capacity = 60});
    Tokens text = some_tokens(31);
    generator.read_prompt(0, text);
    text.resize(17);
    for (int32_t token = 0; token < 8; ++token) text.push_back(token);
    generator.read_changes(0, text);
    CHECK(generator.tokens(0) == text);
    const Tokens found = continue_text(generator, 20, Sampler({.seed = 4}), {}, {}).tokens;
    CHECK(found == continued(generator, text, 20, {.seed = 4}));
  }
}

TEST_CASE("the mean state of a text is that of its final hidden states") {
  Generator generator(folder_of("llama"), {.capacity = 300});
  const Tokens text = some_tokens(300);
  const auto whole = generator.mean_state(text);
  CHECK(std::ssize(whole) == generator.config().hidden);
  CHECK(whole == generator.mean_state(text));
  // Of one token: the mean of one state; and means of other texts differ.
  CHECK(generator.mean_state({{1}}) != generator.mean_state({{2}}));
  CHECK(test::error_of([&] { generator.mean_state({}); }) ==
        "the text is empty, must have at least one token");
}

TEST_CASE("generation allocates nothing once its model is loaded") {
  Generator generator(folder_of("llama"), {.capacity = 300});
  const MemoryCounters before = memory_counters();
  continued(generator, some_tokens(270), 30, {});
  CHECK(memory_counters().allocations == before.allocations);
  CHECK(generator.memory_bytes() > 0);
}

TEST_CASE("texts beyond the capacity are refused with the numbers") {
  const std::string folder = folder_of("gpt2");
  CHECK(test::error_of([&] { Generator(folder, {.capacity = kPositions + 1}); }) ==
        str("prompt and continuation have 401 tokens, but ", folder, "/config.json has positions for 400"));
  Generator generator(folder, {.capacity = 10});
  CHECK(test::error_of([&] { generator.logits(0); }) == "there is no prompt to continue");
  CHECK(test::error_of([&] { generator.read_prompt(0, {}); }) ==
        "the prompt is empty, must have at least one token");
  CHECK(test::error_of([&] { generator.read_prompt(0, some_tokens(11)); }) ==
        "a text of 11 tokens exceeds the capacity of 10 tokens");
  CHECK(test::error_of([&] { continued(generator, some_tokens(6), 5, {}); }) ==
        "a prompt of 6 tokens and 5 more exceed the capacity of 10 tokens");
  CHECK(continued(generator, some_tokens(6), 4, {}).size() == 4);
  CHECK(test::error_of([&] { generator.read_prompt(0, Tokens{40}); }).find("token 40") != std::string::npos);
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
  CHECK(test::error_of([] { find_model_folder("./no/such"); }) == "./no/such: no such folder");
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
      test::run_command("@generate " + folder + " --max-tokens 2 --prompt '1 2' --temperature 0");
  CHECK_MESSAGE(greedy.exit_code == 0, greedy.output);
}
