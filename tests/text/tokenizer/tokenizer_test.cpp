#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "runtime/json.h"
#include "runtime/parallel.h"
#include "runtime/utf8.h"
#include "source_dir.h"
#include "tests/checkpoint_content.h"
#include "tests/test.h"
#include "tests/text_libraries.h"
#include "text/words/regex.h"
#include "text/words/unicode.h"

using namespace flatshard;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const fs::path kGolden = fs::path(kSourceDir) / "tests" / "golden" / "tokenizers";

fs::path new_folder(const std::string& name) {
  fs::remove_all(name);
  fs::create_directory(name);
  return name;
}

Tokenizer golden(const std::string& name) { return Tokenizer((kGolden / name).string()); }

json golden_json(const std::string& name) { return json::parse(test::read_file((kGolden / name).string())); }

const json& expected() {
  static const json all = golden_json("expected.json");
  return all;
}

// Hugging Face's library reports the start of the character for a token that begins inside one.
size_t character_start(const std::string& text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xc0u) == 0x80u) --at;
  return at;
}

std::string streamed(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  StreamDecoder decoder(tokenizer);
  std::string text;
  for (const int32_t id : ids) {
    const std::string piece = decoder.take(id);
    CHECK(valid_utf8_prefix(piece) == piece.size());
    text += piece;
  }
  return text + decoder.rest();
}

// Merges the pair of lowest rank, the leftmost first, until none is left: the definition.
std::vector<int32_t> merged_by_definition(const json& model, std::vector<std::string> tokens) {
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (const json& merge : model["merges"]) ranks.emplace(std::pair{merge[0], merge[1]}, ranks.size());
  for (;;) {
    size_t best = ranks.size(), at = 0;
    for (size_t i = 0; i + 1 < tokens.size(); ++i)
      if (const auto found = ranks.find({tokens[i], tokens[i + 1]});
          found != ranks.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    if (best == ranks.size()) break;
    tokens[at] += tokens[at + 1];
    tokens.erase(tokens.begin() + static_cast<ptrdiff_t>(at) + 1);
  }
  std::vector<int32_t> ids;
  for (const std::string& token : tokens) ids.push_back(model["vocab"][token]);
  return ids;
}

// A tokenizer.json of the letters a to d with these other members.
std::string small_json(const std::string& members, const std::string& model_members = "") {
  return R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,"d":3,"ab":4,"<s>":5},"merges":["a b"])" +
         model_members + "}" + members + "}";
}

Tokenizer small(const std::string& members, const std::string& model_members = "") {
  return Tokenizer::from_json(small_json(members, model_members), "tokenizer.json");
}

constexpr char kSpecialS[] =
    R"(,"added_tokens":[{"id":5,"content":"<s>","special":true,"normalized":false}])";

}  // namespace

TEST_CASE("ids, begins and decoded text are those of Hugging Face's tokenizers") {
  if (test::lacks_text_libraries()) return;
  const json& texts = expected()["texts"];
  for (const auto& [name, wanted] : expected()["tokenizers"].items()) {
    const Tokenizer tokenizer = golden(name);
    for (size_t i = 0; i < texts.size(); ++i) {
      CAPTURE(name);
      CAPTURE(texts[i].dump());
      const std::string text = texts[i];
      const Encoding encoding = tokenizer.encode(text);
      CHECK(encoding.ids == wanted["ids"][i].get<std::vector<int32_t>>());
      CHECK(tokenizer.decode(encoding.ids) == wanted["decoded"][i].get<std::string>());
      CHECK(streamed(tokenizer, encoding.ids) == tokenizer.decode(encoding.ids));
      REQUIRE(encoding.begins.size() == encoding.ids.size());
      CHECK(std::is_sorted(encoding.begins.begin(), encoding.begins.end()));
      if (!wanted.contains("begins")) continue;
      std::vector<size_t> begins;
      for (const uint32_t begin : encoding.begins) begins.push_back(character_start(text, begin));
      CHECK(begins == wanted["begins"][i].get<std::vector<size_t>>());
    }
  }
}

TEST_CASE("the two files of GPT-2 give the ids of its tokenizer.json, under either pair of names") {
  if (test::lacks_text_libraries()) return;
  const fs::path folder = new_folder("tokenizer_files");
  fs::copy_file(kGolden / "gpt2_files" / "vocab.json", folder / "encoder.json");
  std::ofstream(folder / "vocab.bpe") << "#version: 0.2\n"
                                      << test::read_file((kGolden / "gpt2_files" / "merges.txt").string());
  const Tokenizer whole = golden("gpt2"), two = golden("gpt2_files"), old(folder.string());
  for (const json& text : expected()["texts"]) {
    const std::string plain = text.get<std::string>();
    if (plain.find("<s>") != plain.npos || plain.find("</s>") != plain.npos)
      continue;  // not special in two files
    CHECK(two.encode(plain).ids == whole.encode(plain).ids);
    CHECK(old.encode(plain).ids == whole.encode(plain).ids);
  }
}

TEST_CASE("words of any length are merged by rank, the leftmost pair first") {
  if (test::lacks_text_libraries()) return;
  const json model = golden_json("gpt2/tokenizer.json")["model"];
  json pairs = model;
  for (json& merge : pairs["merges"]) {
    const std::string both = merge;
    merge = {both.substr(0, both.find(' ')), both.substr(both.find(' ') + 1)};
  }
  const Tokenizer tokenizer = golden("gpt2");
  for (const size_t length : {1, 2, 3, 7, 24, 25, 95, 96, 97, 98, 500}) {
    std::string word;
    std::vector<std::string> letters;
    for (size_t i = 0, state = length; i < length; ++i) {
      state = (state * 1103515245 + 12345) & 0x7fffffff;
      word += "thersainogd"[(state >> 16) % 11];
      letters.emplace_back(1, word.back());
    }
    CHECK(tokenizer.encode(word).ids == merged_by_definition(pairs, letters));
    CHECK(tokenizer.encode(word).ids == tokenizer.encode(word).ids);  // the second time from the cache
  }
}

TEST_CASE("invalid UTF-8 is encoded as one U+FFFD for each invalid sequence, and keeps its place") {
  if (test::lacks_text_libraries()) return;
  const Tokenizer tokenizer = golden("gpt2");
  const std::string fffd = kReplacementCharacter;
  const auto check_same = [&](const std::string& bytes, const std::string& text) {
    CAPTURE(text);
    CHECK(tokenizer.encode(bytes).ids == tokenizer.encode(text).ids);
  };
  check_same("\xff", fffd);
  check_same("\xe2\x82", fffd);  // cut off
  check_same("\xe2\x82(\xf0\x9f\x98", fffd + "(" + fffd);
  check_same("\xc0\xaf", fffd + fffd);             // overlong
  check_same("\xed\xa0\x80", fffd + fffd + fffd);  // a surrogate
  check_same("\xf4\x90\x80\x80", fffd + fffd + fffd + fffd);
  const Encoding encoding = tokenizer.encode("\xff\xfe!");
  CHECK(encoding.begins.back() == 2);
}

TEST_CASE("special tokens are not recognized in plain ranges or across their ends") {
  if (test::lacks_text_libraries()) return;
  const Tokenizer tokenizer = small(kSpecialS, R"(,"unk_token":"d")");
  const std::string text = "a<s>b<s>c";  // <s> at 1 and 5
  const auto specials = [&](std::vector<TextRange> plain) {
    const std::vector<int32_t> ids = tokenizer.encode(text, false, plain).ids;
    return std::count(ids.begin(), ids.end(), 5);
  };
  CHECK(specials({}) == 2);
  CHECK(specials({{0, 9}}) == 0);
  CHECK(specials({{4, 5}}) == 2);
  CHECK(specials({{3, 4}}) == 1);
  CHECK(specials({{5, 6}}) == 1);
  CHECK(specials({{0, 2}, {7, 9}}) == 0);
  CHECK(specials({{1, 1}, {4, 5}}) == 2);
}

TEST_CASE("a token may contain U+0000") {
  if (test::lacks_text_libraries()) return;
  const Tokenizer tokenizer = Tokenizer::from_json(
      R"({"model":{"type":"BPE","vocab":{"a":0,"\u0000":1,"\u0000a":2},"merges":[["\u0000","a"]]}})",
      "t.json");
  using namespace std::string_literals;
  CHECK(tokenizer.encode("a\0a\0"s).ids == std::vector{0, 2, 1});
  CHECK(tokenizer.decode(std::vector{0, 2, 1}) == "a \0a \0"s);  // without a decoder
}

TEST_CASE("a text that begins like an added token everywhere is refused, not searched without bound") {
  if (test::lacks_text_libraries()) return;
  const auto with_token = [](const std::string& content) {
    return small(R"(,"added_tokens":[{"id":6,"content":")" + content +
                 R"(","special":false,"normalized":false}],"unk_token":"d")");
  };
  const std::string spaces(4000, ' '), text(3'000'000, ' ');
  CHECK(test::error_of([&] {
          with_token(spaces + 'x').encode(text);
        }).starts_with("the added tokens of the tokenizer cannot be searched for at byte "));
  CHECK(with_token(spaces + 'x').encode(std::string(3000, ' ') + spaces + 'x').ids.back() == 6);
  CHECK(with_token(spaces).encode(text).ids.size() == 750);
  CHECK(with_token(std::string(31, ' ')).encode(text + 'd').ids.back() != 6);
}

TEST_CASE("plain text becomes no special token even where merges or the vocabulary would allow it") {
  if (test::lacks_text_libraries()) return;
  const std::string text = "ab";
  const std::vector<TextRange> plain{{0, 2}};
  const std::string added = R"(,"added_tokens":[{"id":4,"content":"ab","special":true,"normalized":false}])";
  CHECK(small(added).encode(text).ids == std::vector{4});
  CHECK(small(added).encode(text, true, plain).ids == std::vector{0, 1});
  CHECK(small(added, R"(,"ignore_merges":true)").encode(text, true, plain).ids == std::vector{0, 1});
}

TEST_CASE("threads that encode at the same time get the ids of one thread") {
  if (test::lacks_text_libraries()) return;
  const Tokenizer tokenizer = golden("qwen2");
  const json& texts = expected()["texts"];
  const int64_t tasks = std::ssize(texts) * 4;
  std::vector<std::vector<int32_t>> ids(static_cast<size_t>(tasks));
  parallel_for(tasks, [&](int64_t i) {
    ids[static_cast<size_t>(i)] =
        tokenizer.encode(texts[static_cast<size_t>(i) % texts.size()].get<std::string>()).ids;
  });
  for (size_t i = 0; i < ids.size(); ++i)
    CHECK(ids[i] == expected()["tokenizers"]["qwen2"]["ids"][i % texts.size()].get<std::vector<int32_t>>());
}

TEST_CASE("a folder names the BOS, EOS and padding tokens, and whether they are added") {
  if (test::lacks_text_libraries()) return;
  const fs::path folder = new_folder("tokenizer_names");
  const auto write = [&](const char* name, const std::string& text) { std::ofstream(folder / name) << text; };
  write("tokenizer.json", small_json(kSpecialS));
  CHECK_FALSE(Tokenizer(folder.string()).bos());
  const std::string identity = Tokenizer(folder.string()).identity();
  write("special_tokens_map.json", R"({"eos_token":{"content":"ab"},"bos_token":"c","pad_token":"nowhere"})");
  write("tokenizer_config.json", R"({"bos_token":"<s>","add_bos_token":true,"add_eos_token":true})");
  const Tokenizer tokenizer(folder.string());
  CHECK(tokenizer.bos() == 5);
  CHECK(tokenizer.eos() == 4);
  CHECK_FALSE(tokenizer.pad());
  CHECK(tokenizer.encode("d").ids == std::vector{5, 3, 4});
  CHECK(tokenizer.encode("d", false).ids == std::vector{3});
  CHECK(tokenizer.decode(tokenizer.encode("d").ids, true) == "d ab");
  CHECK(tokenizer.identity() != identity);
  CHECK(Tokenizer((folder / "tokenizer.json").string()).identity() == tokenizer.identity());
  write("tokenizer_config.json", R"({"add_bos_token":true,"bos_token":"nowhere"})");
  CHECK(test::error_of([&] { Tokenizer{folder.string()}; }).find("add_bos_token is true") !=
        std::string::npos);
}

TEST_CASE("tokens are found by text and by id, and an unknown id is decoded as U+FFFD") {
  if (test::lacks_text_libraries()) return;
  const Tokenizer tokenizer = small(kSpecialS);
  CHECK(tokenizer.vocab() == 6);
  CHECK(tokenizer.id_of("ab") == 4);
  CHECK_FALSE(tokenizer.id_of("ba"));
  CHECK(tokenizer.token_text(5) == "<s>");
  CHECK(tokenizer.is_special(5));
  CHECK_FALSE(tokenizer.is_special(4));
  CHECK_FALSE(tokenizer.is_special(-1));
  CHECK(tokenizer.decode(std::vector{0, 77, -5}) ==
        std::string("a ") + kReplacementCharacter + " " + kReplacementCharacter);
  CHECK(test::error_of([&] { tokenizer.token_text(6); }) ==
        "the id 6 has no token; the vocabulary has 6 ids");
}

TEST_CASE("an unsupported or invalid file is refused with the place and the reason") {
  if (test::lacks_text_libraries()) return;
  const auto error = [](const std::string& text) {
    return test::error_of([&] { Tokenizer::from_json(text, "t.json"); });
  };
  const auto check_error = [&](const std::string& text, const std::string& reason) {
    CAPTURE(text);
    CHECK(error(text) == reason);
  };
  CHECK(error(small_json("")).empty());
  check_error(small_json(R"(,"normalizer":{"type":"BertNormalizer"})"),
              "t.json: normalizer BertNormalizer: this normalizer is not supported");
  check_error(
      small_json(R"(,"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"UnicodeScripts"}]})"),
      "t.json: pre_tokenizer Sequence: pretokenizers[0] UnicodeScripts: this pre-tokenizer is not supported");
  check_error(small_json(R"(,"pre_tokenizer":{"type":"Digits","new_option":1})"),
              "t.json: pre_tokenizer Digits: the member \"new_option\" is not supported");
  check_error(
      small_json(R"(,"pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated"})"),
      "t.json: pre_tokenizer Split: the pattern (a is invalid near byte 2: missing closing parenthesis");
  check_error(small_json(R"(,"decoder":{"type":"CTC"})"),
              "t.json: decoder CTC: this decoder is not supported");
  check_error(
      small_json(R"(,"post_processor":{"type":"TemplateProcessing","single":[],"special_tokens":{}})"),
      "t.json: post_processor TemplateProcessing: \"single\" must contain the sequence A");
  check_error(small_json("", R"(,"dropout":0.1)"),
              "t.json: model BPE: \"dropout\" is 0.1, which is not supported: only null is");
  check_error(small_json("", R"(,"unk_token":"x")"),
              "t.json: model BPE: unk_token \"x\" is not in the vocabulary");
  check_error(R"({"model":{"type":"Unigram"}})", "t.json: model Unigram: this model is not supported");
  check_error(R"({"model":{"vocab":{"a":0},"merges":["a"]}})",
              "t.json: model: merges[0]: must be two tokens, as in [\"a\", \"b\"] or \"a b\"");
  check_error(R"({"model":{"vocab":{"a":0},"merges":["a b"]}})",
              "t.json: merge 0, \"a\" and \"b\": \"ab\" is not in the vocabulary");
  CHECK(error(R"({"model":{"vocab":{"a":0,"b":0},"merges":[]}})").ends_with("have the same id 0"));
  check_error(
      R"({"model":{"vocab":{"a":1152921504606846976},"merges":[]}})",
      "t.json: model: vocab: the id of \"a\" is 1152921504606846976, must be a whole number below 4194304");
  check_error(R"({"model":{"vocab":{},"merges":[]}})", "t.json: model: vocab: the vocabulary is empty");
  check_error(small_json(R"(,"added_tokens":[{"id":9,"content":"ab"}])"),
              "t.json: the added token \"ab\" has the id 9, but the vocabulary has 4");
  CHECK(error(std::string(1000, '[')).find("nested more than 32 levels deep") != std::string::npos);
  CHECK(error("{\"\xff\":1}").find("not UTF-8") != std::string::npos);
  CHECK(test::error_of([] { Tokenizer{"nowhere"}; }).find("nowhere") != std::string::npos);
}
