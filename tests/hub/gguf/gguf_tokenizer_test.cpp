#include "hub/gguf/gguf_tokenizer.h"

#include <filesystem>
#include <fstream>
#include <map>

#include "runtime/json.h"
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

// Writes the files of the tokenizer in a GGUF file into a new folder, those of these names.
std::string folder_of(const GgufFile& file,
                      const std::vector<std::string>& names = {"tokenizer.json", "tokenizer_config.json",
                                                               "generation_config.json"}) {
  const std::string folder = "gguf_tokenizer_test";
  fs::remove_all(folder);
  fs::create_directory(folder);
  const TokenizerFiles files = tokenizer_files_of(file);
  for (const std::string& name : names) std::ofstream(folder + '/' + name) << files.at(name);
  return folder;
}

std::string joined(const std::vector<std::string>& notes) {
  std::string all;
  for (const std::string& note : notes) all += note + '\n';
  return all;
}

// The tokens by the ids that Hugging Face's tokenizers gives them. It keeps the vocabulary of the model. An
// added token that is not there gets the number of tokens that are, or the one after the largest added one,
// whichever is larger; its id in the file is ignored.
std::map<int64_t, std::string> numbered(const std::string& tokenizer_json) {
  const json file = json::parse(tokenizer_json);
  const json& vocabulary = file.at("model").at("vocab");
  std::map<int64_t, std::string> tokens;
  for (const auto& [token, id] : vocabulary.items()) tokens[id.get<int64_t>()] = token;
  int64_t next = std::ssize(vocabulary);
  for (const json& added : file.at("added_tokens")) {
    const auto content = added.at("content").get<std::string>();
    const int64_t id = vocabulary.contains(content) ? vocabulary[content].get<int64_t>() : next;
    tokens[id] = content;
    next = std::max(next, id + 1);
  }
  return tokens;
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
    const Tokenizer back(folder_of(file));
    CHECK(back.encode(text, false).ids == original.encode(text, false).ids);
    CHECK(back.decode(back.encode(text, false).ids) == original.decode(original.encode(text, false).ids));
  }
}

TEST_CASE("Hugging Face's tokenizers gives every token of a GGUF file its id") {
  for (const std::string name : {"gpt2", "llama3", "qwen2", "llama2"}) {
    CAPTURE(name);
    const Tokenizer original(golden(name));
    const GgufFile file(written({.folder = golden(name), .vocab = original.vocab() + 3}));
    std::map<int64_t, std::string> expected;
    const auto& tokens = file.value<std::vector<std::string>>("tokenizer.ggml.tokens");
    for (int64_t id = 0; id < original.vocab(); ++id) expected[id] = tokens[static_cast<size_t>(id)];
    CHECK(numbered(tokenizer_files_of(file).at("tokenizer.json")) == expected);
  }
}

TEST_CASE("unused tokens keep a place among the used ones, unless another token has their text") {
  GgufWriter out;
  out.put("tokenizer.ggml.model", "gpt2");
  out.put("tokenizer.ggml.tokens",
          std::vector<std::string>{"a", "<|im_end|>", "<unused>", "<unused>", "b", "b", "c"});
  out.put("tokenizer.ggml.token_type", std::vector<int32_t>{1, 3, 5, 5, 5, 1, 5});
  out.put("tokenizer.ggml.merges", std::vector<std::string>{});
  out.begin("gguf_tokenizer_test.gguf");
  out.finish();
  const GgufFile file("gguf_tokenizer_test.gguf");
  CHECK(numbered(tokenizer_files_of(file).at("tokenizer.json")) ==
        std::map<int64_t, std::string>{{0, "a"}, {1, "<|im_end|>"}, {2, "<unused>"}, {5, "b"}});
}

TEST_CASE("two tokens of a GGUF file with one text are an error") {
  GgufWriter out;
  out.put("tokenizer.ggml.model", "gpt2");
  out.put("tokenizer.ggml.tokens", std::vector<std::string>{"a", "<s>", "<s>"});
  out.put("tokenizer.ggml.token_type", std::vector<int32_t>{1, 3, 3});
  out.put("tokenizer.ggml.merges", std::vector<std::string>{});
  out.begin("gguf_tokenizer_test.gguf");
  out.finish();
  CHECK(test::missing_from(test::error_of([] { tokenizer_files_of(GgufFile("gguf_tokenizer_test.gguf")); }),
                           {"token 2 \"<s>\" is there twice"}) == "");
}

TEST_CASE("tokenizer.json alone adds the tokens that llama.cpp adds to a text") {
  const std::string text = "the fox";
  for (const std::string name : {"llama2", "llama3", "qwen2"}) {
    CAPTURE(name);
    const std::string source = "gguf_tokenizer_source";
    fs::remove_all(source);
    fs::copy(golden(name), source);
    std::ofstream(source + "/tokenizer_config.json") << R"({"bos_token": "<s>", "eos_token": "</s>"})";
    const Tokenizer original(source);
    const GgufFile file(written({.folder = source, .vocab = original.vocab()}));
    CHECK(Tokenizer(folder_of(file, {"tokenizer.json"})).encode(text).ids == original.encode(text).ids);
  }
  // A pattern whose models have BOS by default, in a file that does not say.
  GgufWriter out;
  out.put("tokenizer.ggml.model", "gpt2");
  out.put("tokenizer.ggml.pre", "llama-bpe");
  out.put("tokenizer.ggml.tokens", std::vector<std::string>{"a", "<s>"});
  out.put("tokenizer.ggml.token_type", std::vector<int32_t>{1, 3});
  out.put("tokenizer.ggml.merges", std::vector<std::string>{});
  out.put_size("tokenizer.ggml.bos_token_id", 1);
  out.begin("gguf_tokenizer_test.gguf");
  out.finish();
  CHECK(Tokenizer(folder_of(GgufFile("gguf_tokenizer_test.gguf"))).encode("a").ids ==
        std::vector<int32_t>{1, 0});
}

TEST_CASE("what llama.cpp reads otherwise than the tokenizer is said by name") {
  const auto notes_of = [](const std::string& name) {
    std::vector<std::string> notes;
    written({.folder = golden(name), .vocab = Tokenizer(golden(name)).vocab()}, &notes);
    return joined(notes);
  };
  CHECK(test::missing_from(notes_of("metaspace"), {"Metaspace", "prepend_scheme \"first\""}) == "");
  CHECK(test::missing_from(notes_of("qwen2"), {"NFC", "lstrip", "single_word", "<left> and 3 more"}) == "");
  CHECK(notes_of("gpt2") == "");
}

TEST_CASE("a byte token that is listed as added stays one") {
  const std::string source = "gguf_tokenizer_source";
  fs::remove_all(source);
  fs::create_directory(source);
  json tokenizer = json::parse(std::ifstream(golden("llama2") + "/tokenizer.json"));
  const int64_t id = tokenizer["model"]["vocab"]["<0x0A>"];
  json added = tokenizer["added_tokens"].back();
  added["id"] = id;
  added["content"] = "<0x0A>";
  tokenizer["added_tokens"].push_back(added);
  std::ofstream(source + "/tokenizer.json") << tokenizer;
  std::vector<std::string> notes;
  const GgufFile file(written({.folder = source, .vocab = Tokenizer(source).vocab()}, &notes));
  CHECK(file.value<std::vector<int64_t>>("tokenizer.ggml.token_type")[static_cast<size_t>(id)] == 6);
  CHECK(test::missing_from(joined(notes), {"<0x0A>", "added token", "reads the characters as text"}) == "");
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
