#include "hub/text_codec.h"

#include <filesystem>

#include "tests/test.h"
#include "tests/tools/inference/talking_model.h"

using namespace flatshard;

namespace {

using Tokens = std::vector<int32_t>;

Conversation hello() {
  Conversation conversation;
  conversation.add("user", "Hi");
  return conversation;
}

}  // namespace

TEST_CASE("without a tokenizer a vocabulary of 256 is bytes, any other is numbers") {
  std::filesystem::create_directories("codec_plain");
  const ModelSource plain("codec_plain");
  const TextCodec bytes(plain, 256), numbers(plain, 40);
  CHECK(bytes.encode("a\n\xff") == Tokens{97, 10, 255});
  CHECK(bytes.decode(Tokens{255, 97}) ==
        "\xff"
        "a");
  CHECK(numbers.encode(" 3 17\n0 ") == Tokens{3, 17, 0});
  CHECK(numbers.decode(Tokens{3, 17}) == "3 17 ");
  for (const char* text : {"1 two", "1 40", "-1", "3x", "99999999999"})
    CHECK(test::error_of([&] {
            numbers.encode(text);
          }).ends_with("is not a token number: the vocabulary is 40, so tokens are 0 to 39"));
  CHECK(test::error_of([&] { bytes.encode(hello()); }) ==
        "codec_plain: has no tokenizer, which conversations need");
}

TEST_CASE("with a tokenizer text is its tokens, and special tokens are not shown") {
  const std::string folder = "codec_talking";
  test::write_talking_model(folder);
  const TextCodec codec(folder, test::kTalkingVocab, "chatml");
  CHECK(codec.encode("A b") == Tokens{32, 94, 65});
  CHECK(codec.decode(Tokens{32, 94, 97, 65}) == "A b");
  TextCodec::Stream stream(codec);
  CHECK(stream.take(32) + stream.take(94) + stream.take(97) + stream.take(65) + stream.rest() == "A b");
  CHECK(codec.end_tokens() == Tokens{97});
  const Tokens conversation = codec.encode(hello());
  CHECK(conversation.front() == 96);
  CHECK(codec.decode(conversation) == "user\nHi\nassistant\n");
  CHECK(TextCodec(folder, 300).end_tokens() == Tokens{97});
  CHECK(test::error_of([&] { TextCodec(folder, 97); }) ==
        "codec_talking: the tokenizer has 98 tokens, but the model's vocabulary is 97");
  CHECK(test::error_of([&] { TextCodec(folder, 98).encode(hello()); }) ==
        "codec_talking: has no chat template, which conversations need; name one with --chat-template, or "
        "for a run in data.chat_template");
}

TEST_CASE("a text ends at the ids of generation_config.json, or of config.json") {
  const std::string folder = "codec_ends";
  test::write_talking_model(folder);
  const std::string config = folder + "/config.json", generation = folder + "/generation_config.json";
  test::write_text(config, R"({"eos_token_id": 5})");
  CHECK(TextCodec(folder, 98).end_tokens() == Tokens{5, 97});
  test::write_text(generation, R"({"eos_token_id": [7, 11]})");
  CHECK(TextCodec(folder, 98).end_tokens() == Tokens{7, 11, 97});
  test::write_text(generation, R"({"eos_token_id": null})");
  CHECK(TextCodec(folder, 98).end_tokens() == Tokens{5, 97});
  test::write_text(generation, R"({"eos_token_id": [7, 98]})");
  CHECK(test::error_of([&] { TextCodec(folder, 98); }) ==
        "codec_ends/generation_config.json: eos_token_id is [7,98], must be a token, or a list of tokens, "
        "below "
        "the vocabulary size of 98");
}
