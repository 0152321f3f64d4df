#include "text/tokenizer/bpe_trainer.h"

#include <filesystem>

#include "runtime/json.h"
#include "runtime/parallel.h"
#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "text/tokenizer/tokenizer.h"
#include "text/words/unicode.h"

using namespace flatshard;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

bool cannot_run() {
  const std::string missing = test::error_of([] { char_sets(); });
  if (!missing.empty()) test::skip(missing);
  return !missing.empty();
}

json golden(const std::string& name) {
  return json::parse(
      test::read_file((fs::path(kSourceDir) / "tests" / "golden" / "tokenizers" / name).string()));
}

std::string trained(const BpeTrainerOptions& options, const std::vector<std::string>& documents) {
  BpeTrainer trainer(options);
  for (const std::string& document : documents) trainer.add(document);
  return trainer.tokenizer_json();
}

std::string error_of_options(const BpeTrainerOptions& options) {
  return test::error_of([&] { BpeTrainer{options}; });
}

}  // namespace

TEST_CASE("training gives the vocabulary and merges of Hugging Face's BpeTrainer") {
  if (cannot_run()) return;
  const json model = golden("gpt2/tokenizer.json")["model"];
  const json own = json::parse(trained({.vocab = 420, .special = {"<s>", "</s>"}, .pattern = kGpt2Pattern},
                                       golden("expected.json")["corpus"]))["model"];
  CHECK(own["vocab"] == model["vocab"]);
  std::vector<std::string> merges;
  for (const json& merge : own["merges"])
    merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  CHECK(merges == model["merges"].get<std::vector<std::string>>());
}

TEST_CASE("a trained tokenizer does not depend on threads or the order of documents, and opens") {
  if (cannot_run()) return;
  std::vector<std::string> documents = golden("expected.json")["corpus"];
  const BpeTrainerOptions options{.vocab = 500, .special = {"<|endoftext|>"}};
  const int threads = thread_count();
  set_thread_count(1);
  const std::string one = trained(options, documents);
  set_thread_count(4);
  std::reverse(documents.begin(), documents.end());
  CHECK(trained(options, documents) == one);
  set_thread_count(threads);
  const Tokenizer tokenizer = Tokenizer::from_json(one, "trained");
  CHECK(tokenizer.vocab() == 500);
  const std::string text = documents[3] + "<|endoftext|>\xff?";
  const Encoding encoding = tokenizer.encode(text);
  CHECK(std::count(encoding.ids.begin(), encoding.ids.end(), 0) == 1);
  CHECK(tokenizer.decode(encoding.ids) == documents[3] + "<|endoftext|>\ufffd?");
}

TEST_CASE("training stops when no pair is left") {
  if (cannot_run()) return;
  const json model = json::parse(trained({.vocab = 1000, .special = {}}, {"aaa aaa", ""}))["model"];
  CHECK(model["merges"] == json::parse(R"([["a","a"],["aa","a"],["\u0120","aaa"]])"));
  CHECK(model["vocab"].size() == 256 + 3);
}

TEST_CASE("a vocabulary or a special token that cannot be trained is refused") {
  if (cannot_run()) return;
  CHECK(error_of_options({.vocab = 256, .special = {"<s>"}}) ==
        "a vocabulary of 256 tokens: must have 257 (the bytes and special tokens) to 4194304");
  CHECK(error_of_options({.vocab = 300, .special = {"<s>", "<s>"}}) ==
        "the special token \"<s>\" appears twice");
  CHECK(error_of_options({.vocab = 300, .special = {""}}) ==
        "the special token \"\" must be UTF-8 text that is not empty");
  CHECK(error_of_options({.vocab = 300, .special = {"\u00e9"}}) ==
        "the special token \"\u00e9\" is the letter of a byte: choose a longer one");
}
