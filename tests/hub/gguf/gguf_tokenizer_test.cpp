#include "hub/gguf/gguf_tokenizer.h"

#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "source_dir.h"
#include "tests/test.h"
#include "text/tokenizer/tokenizer.h"

using namespace flatshard;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string golden(const std::string& name) { return str(kSourceDir, "/tests/golden/tokenizers/", name); }

// A GGUF file with nothing but the tokenizer.
std::string written(const GgufTokenizerSource& source, std::vector<std::string>* notes = nullptr) {
  GgufWriter out;
  const std::vector<std::string> said = put_gguf_tokenizer(out, source);
  if (notes) *notes = said;
  const std::string path = "gguf_tokenizer_test.gguf";
  out.begin(path);
  out.finish();
  return path;
}

}  // namespace

TEST_CASE("a tokenizer that was written as GGUF and read back gives the same ids") {
  const std::string text = "Hello wörld, it's 12345 tests:\n\n  \"we'll\" see\t🙂 a\n";
  for (const auto& [name, model, pattern] : {std::tuple{"gpt2", "gpt2", "gpt-2"},
                                             {"llama3", "gpt2", "llama-bpe"},
                                             {"qwen2", "gpt2", "qwen2"},
                                             {"llama2", "llama", "default"}}) {
    CAPTURE(name);
    const Tokenizer original(golden(name));
    const int64_t vocab = original.vocab() + 3;
    const GgufFile file(written({.folder = golden(name), .vocab = vocab}));
    CHECK(file.value<std::string>("tokenizer.ggml.model") == model);
    CHECK(file.value<std::string>("tokenizer.ggml.pre") == pattern);
    const auto& tokens = file.value<std::vector<std::string>>("tokenizer.ggml.tokens");
    CHECK(std::ssize(tokens) == vocab);
    CHECK(tokens.back() == str("[PAD", vocab - 1, ']'));
    CHECK(file.value<std::vector<int64_t>>("tokenizer.ggml.token_type").back() == 5);
    const std::string folder = "gguf_tokenizer_test";
    fs::remove_all(folder);
    fs::create_directory(folder);
    for (const auto& [file_name, content] : tokenizer_files_of(file))
      std::ofstream(folder + '/' + file_name) << content;
    const Tokenizer back(folder);
    CHECK(back.encode(text, false).ids == original.encode(text, false).ids);
    CHECK(back.decode(back.encode(text, false).ids) == original.decode(original.encode(text, false).ids));
  }
}

TEST_CASE("the tokenizer's folder of a GGUF file exists while the program runs") {
  const std::string path = written({.folder = golden("gpt2"), .vocab = Tokenizer(golden("gpt2")).vocab()});
  const std::string folder = tokenizer_folder_of(path);
  CHECK(fs::exists(folder + "/tokenizer.json"));
  CHECK(tokenizer_folder_of(path) == folder);
  CHECK(tokenizer_folder_of(golden("gpt2")) == golden("gpt2"));
}

TEST_CASE("a pattern that llama.cpp does not know needs a name") {
  const std::string folder = "gguf_pattern_test";
  fs::create_directories(folder);
  std::ifstream in(golden("llama3") + "/tokenizer.json");
  json tokenizer = json::parse(in);
  for (json& step : tokenizer["pre_tokenizer"]["pretokenizers"])
    if (step["type"] == "Split") step["pattern"]["Regex"] = "[a-z]+|[^a-z]+";
  std::ofstream(folder + "/tokenizer.json") << tokenizer;
  GgufTokenizerSource source{.folder = folder, .vocab = Tokenizer(folder).vocab()};
  CHECK(test::missing_from(test::error_of([&] { written(source); }), {folder, "--pattern"}) == "");
  source.pattern = "mine";
  CHECK(GgufFile(written(source)).value<std::string>("tokenizer.ggml.pre") == "mine");
}

TEST_CASE("a vocabulary that is too small, and a model without a tokenizer") {
  CHECK(test::missing_from(test::error_of([] { written({.folder = golden("gpt2"), .vocab = 3}); }),
                           {"tokens, but the vocabulary of the model is 3"}) == "");
  std::vector<std::string> notes;
  const GgufFile file(written({.folder = "", .vocab = 10}, &notes));
  CHECK(file.value<std::string>("tokenizer.ggml.model") == "none");
  CHECK(notes.size() == 1);
  CHECK(tokenizer_files_of(file).empty());
}
