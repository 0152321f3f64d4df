#include "text/data/sample_encoder.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "runtime/json.h"
#include "source_dir.h"
#include "tests/byte_tokenizer.h"
#include "tests/test.h"
#include "tests/text/images/pixels.h"
#include "text/images/image_file.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

std::string golden(const std::string& name) { return str(kSourceDir, "/tests/golden/image_folders/", name); }

std::vector<nlohmann::json> lines_of(const std::string& path) {
  std::ifstream in(path);
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::vector<Record> records_of(const std::string& path) {
  std::vector<Record> records;
  read_records(path, TextSplit::none, [&](Record record) { records.push_back(std::move(record)); });
  return records;
}

// The text, with [ ] around trained tokens and a + for all tokens of an image.
std::string shown(const SampleEncoder& encoder, const Sample& sample) {
  std::string text;
  const auto is_trained = [&](size_t i) {
    return i < sample.tokens.size() && !sample.trained.empty() && sample.trained[i];
  };
  auto image = sample.images.begin();
  std::vector<int32_t> run;
  const auto end_run = [&] {
    text += encoder.decode(run);
    run.clear();
  };
  for (size_t i = 0; i < sample.tokens.size(); ++i) {
    if (image != sample.images.end() && std::cmp_equal(i, image->extent.begin)) {
      end_run();
      text += '+';
      i = static_cast<size_t>(image->extent.end) - 1;
      ++image;
      continue;
    }
    if (is_trained(i) && (i == 0 || !is_trained(i - 1))) end_run(), text += '[';
    run.push_back(sample.tokens[i]);
    if (is_trained(i) && !is_trained(i + 1)) end_run(), text += ']';
  }
  end_run();
  return text;
}

Record record(const std::string& json) {
  return {
      .text = json, .is_json = true, .where = "f.jsonl:3", .folder = str(kSourceDir, "/tests/golden/images")};
}

Sample encode(const EncoderOptions& options, const std::string& json) {
  return SampleEncoder(options).encode(record(json));
}

std::string error(const EncoderOptions& options, const std::string& json) {
  return test::error_of([&] { encode(options, json); });
}

const std::string kChat = R"({"messages": [{"role": "user", "content": "<image>What?"},
  {"role": "assistant", "content": "the loss"}], "image": "rgb.jpeg"})";

// As much of the images of a sample as decides the hash of tests/golden/image_folders.py.
std::vector<float> patches_of(const ImageRules& rules, const Sample& sample) {
  std::vector<float> rows;
  for (const DocumentImage& image : sample.images) {
    const std::string file = read_image(image.source);
    const ImageLayout layout = layout_of(rules, image.facts.size);
    const size_t begin = rows.size();
    rows.resize(begin + static_cast<size_t>(layout.patches * rules.patch_width()));
    std::vector<int32_t> positions(static_cast<size_t>(layout.patches * rules.axes()));
    const Transparency transparency = transparency_of(rules.family, image.facts.is_object);
    write_patches(rules, layout, decoded(std::as_bytes(std::span(file)), transparency), rows.data() + begin,
                  positions.data(), layout.patches);
  }
  return rows;
}

}  // namespace

TEST_CASE("conversations with images have the ids and pixels that the processors of transformers make") {
  const std::vector<Record> records = records_of(golden("chats.jsonl"));
  const std::vector<nlohmann::json> expected = lines_of(golden("expected.jsonl"));
  REQUIRE(records.size() >= 10);
  REQUIRE(expected.size() == 7 * records.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const std::string folder = expected[i]["folder"];
    CAPTURE(folder);
    CAPTURE(i % records.size());
    const SampleEncoder encoder({.tokenizer = golden(folder)});
    const Sample sample = encoder.encode(records[i % records.size()]);
    CHECK(sample.tokens == expected[i]["ids"].get<std::vector<int32_t>>());
    const ImageRules& rules = encoder.image_input()->rules;
    const std::vector<float> rows = patches_of(rules, sample);
    CHECK(std::ssize(rows) == expected[i]["patches"].get<int64_t>() * rules.patch_width());
    CHECK(test::hash_of(std::as_bytes(std::span(rows))) == expected[i]["hash"]);
    const int64_t tokens =
        std::accumulate(sample.images.begin(), sample.images.end(), int64_t{0},
                        [](int64_t sum, const auto& image) { return sum + image.extent.tokens; });
    CHECK(std::count(sample.tokens.begin(), sample.tokens.end(), encoder.image_input()->token) == tokens);
  }
}

TEST_CASE("of a conversation with images the assistant's text is trained, and no token of an image") {
  const EncoderOptions options{.tokenizer = golden("idefics3")};
  const SampleEncoder encoder(options);
  CHECK(shown(encoder, encode(options, kChat)) ==
        "User:+What?<end_of_utterance>\nAssistant:[ the loss<end_of_utterance>]\n");
  const std::string drawn = R"({"messages": [{"role": "user", "content": "Draw."},
    {"role": "assistant", "content": [{"type": "image", "path": "rgb.jpeg"}, {"type": "text", "text": "Done"}]}]})";
  CHECK(shown(encoder, encode(options, drawn)) ==
        "User: Draw.<end_of_utterance>\nAssistant:+[Done<end_of_utterance>]\n");
  EncoderOptions all = options;
  all.train_on = TrainOn::all;
  CHECK(shown(encoder, encode(all, kChat)) ==
        "[User:]+[What?<end_of_utterance>\nAssistant: the loss<end_of_utterance>\n]");
}

TEST_CASE("a prompt shows images by <image>, and with its completion every one") {
  const EncoderOptions options{.tokenizer = golden("idefics2_whole")};
  const SampleEncoder encoder(options);
  const Sample sample =
      encode(options, R"({"prompt": "<image>What", "completion": " the loss", "image": "rgb.jpeg"})");
  CHECK(shown(encoder, sample) == "<s>+ What[the loss</s>]");
  REQUIRE(sample.images.size() == 1);
  CHECK(sample.images[0].facts.size == ImageSize{29, 19});
  CHECK(error(options, R"({"prompt": "What", "completion": "this", "image": "rgb.jpeg"})") ==
        "f.jsonl:3: the record has 1 image, but prompt and completion show 0: write <image> once for each");
}

TEST_CASE("<image> that a user types is text, and texts are shown without parts") {
  const EncoderOptions options{.tokenizer = golden("smolvlm")};
  const SampleEncoder encoder(options);
  const Sample sample = encode(options, R"({"messages": [{"role": "user", "content": "<image>"},
                                                         {"role": "assistant", "content": "a"}]})");
  CHECK(sample.images.empty());
  CHECK(std::count(sample.tokens.begin(), sample.tokens.end(), encoder.image_input()->token) == 0);
  CHECK(shown(encoder, sample) == "User: <image><end_of_utterance>\nAssistant:[ a<end_of_utterance>]\n");
}

TEST_CASE("an image that is missing, cannot be read or does not decode is refused with its record") {
  const EncoderOptions options{.tokenizer = golden("idefics2")};
  const auto chat = [](const std::string& image) {
    return R"({"messages": [{"role": "user", "content": "a"}], "image": ")" + image + "\"}";
  };
  CHECK(test::missing_from(error(options, chat("no_such.png")),
                           {"f.jsonl:3: ", "images/no_such.png", "No such file"}) == "");
  CHECK(test::missing_from(error(options, chat("picture.gif")),
                           {"f.jsonl:3: ", "images/picture.gif: is a GIF: convert"}) == "");
  std::string bytes = read_image({.path = str(kSourceDir, "/tests/golden/images/rgb_8.png")});
  bytes[bytes.size() - 40] ^= 1;
  std::ofstream("damaged.png", std::ios::binary) << bytes;
  CHECK(test::missing_from(error(options, chat(fs::absolute("damaged.png").string())),
                           {"f.jsonl:3: ", "/damaged.png: is a damaged PNG (", "--skip-bad"}) == "");
}

TEST_CASE(
    "a tokenizer without the tokens of images, a template without images and a model of text refuse them") {
  test::write_byte_tokenizer("text model");
  const EncoderOptions text{.tokenizer = "text model", .chat_template = "chatml"};
  CHECK(
      test::missing_from(error(text, kChat), {"f.jsonl:3: has images", "no config.json beside", "text model",
                                              "name the folder of such a model, or remove"}) == "");
  CHECK(test::error_of([] {
          SampleEncoder({.tokenizer = "text model", .image_longest_edge = 512});
        }).starts_with("data.image_longest_edge = 512, but the model of text model reads no images"));
  std::ofstream("text model/config.json") << R"({"model_type": "idefics2", "image_token_id": 7})";
  std::ofstream("text model/preprocessor_config.json")
      << R"({"size": {"longest_edge": 64, "shortest_edge": 32}})";
  CHECK(test::missing_from(error(text, kChat),
                           {"f.jsonl:3: ", "chatml",
                            "shows images is a list of parts, which the chat template of a model"}) == "");
  fs::copy_file(golden("idefics2/chat_template.jinja"), "text model/chat_template.jinja");
  CHECK(test::missing_from(error({.tokenizer = "text model"}, kChat),
                           {"f.jsonl:3: an image has 64 image tokens", "makes 0", "image_token_id, 7"}) ==
        "");
}

TEST_CASE("a longest edge replaces that of the model, and is part of the identity of samples") {
  const EncoderOptions options{.tokenizer = golden("idefics3")};
  EncoderOptions small = options;
  small.image_longest_edge = 32;
  CHECK(encode(options, kChat).images[0].extent.frames == 5);
  CHECK(encode(small, kChat).images[0].extent.frames == 1);
  CHECK(SampleEncoder(small).identity() != SampleEncoder(options).identity());
}
