#include "text/chat/image_parts.h"

#include "runtime/base64.h"
#include "tests/test.h"
#include "text/jinja/jinja_print.h"

using namespace flatshard;

namespace {

Conversation conversation(const std::string& json) {
  return parse_chat_record(json, "f.jsonl:3", "photos").conversation;
}

std::string contents(const Conversation& conversation) {
  std::string text;
  for (const JinjaValue& message : conversation.messages) {
    const JinjaValue& content = *message.dict().find("content");
    text += (content.is(JinjaKind::text) ? content.bytes() : jinja_repr(content).bytes()) + "\n";
  }
  return text;
}

// "0 photos/a.png, 2 object <bytes>": message and source of each image.
std::string images(const Conversation& conversation) {
  std::string text;
  for (const ShownImage& image : conversation.images)
    text += str(text.empty() ? "" : ", ", image.message, image.source.is_object ? " object " : " ",
                image.source.path.empty() ? "<" + image.source.bytes + ">" : image.source.path);
  return text;
}

std::string error(const std::string& json) {
  return test::error_of([&] { conversation(json); });
}

const std::string kUser = R"({"messages": [{"role": "user", "content": )";

}  // namespace

TEST_CASE("a part of a message names its image in any of the forms in use") {
  const std::string data = "data:image/png;base64," + to_base64("PNG!");
  const std::pair<std::string, std::string> forms[] = {
      {R"({"type": "image", "path": "a.png"})", "photos/a.png"},
      {R"({"type": "image", "image": "b/../a.png"})", "photos/a.png"},
      {R"({"type": "image", "url": "file:///x/a.png"})", "/x/a.png"},
      {R"({"type": "image", "url": ")" + data + "\"}", "<PNG!>"},
      {R"({"type": "image_url", "image_url": {"url": ")" + data + "\"}}", "<PNG!>"},
      {R"({"type": "image", "image": {"bytes": "UE5HIQ==", "path": "a.png"}})", "object <PNG!>"},
      {R"({"type": "image", "text": null, "image": {"bytes": null, "path": "a.png"}})",
       "object photos/a.png"}};
  for (const auto& [part, source] : forms) {
    CAPTURE(part);
    const Conversation c = conversation(kUser + "[" + part + R"(, {"type": "text", "text": "t"}]}]})");
    CHECK(images(c) == "0 " + source);
    CHECK(contents(c) == "[{'type': 'image'}, {'type': 'text', 'text': 't'}]\n");
  }
}

TEST_CASE("parts without a source show the images that the record lists, in order") {
  const Conversation c = conversation(
      R"({"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "image", "path": "own.png"}]},
                       {"role": "assistant", "content": "<image>"},
                       {"role": "user", "content": [{"type": "text", "text": "<image>"}, {"type": "image"}]}],
          "images": ["1.png", {"path": "2.png"}]})");
  CHECK(images(c) == "0 photos/1.png, 0 photos/own.png, 2 object photos/2.png");
  CHECK(contents(c) ==
        "[{'type': 'image'}, {'type': 'image'}]\n<image>\n"
        "[{'type': 'text', 'text': '<image>'}, {'type': 'image'}]\n");
}

TEST_CASE("<image> in a text shows an image that the record lists, but not in an answer") {
  const Conversation c = conversation(
      R"({"image": ["1.png", "2.png"],
          "conversations": [{"from": "human", "value": "<image>\nWhat, unlike <image>, is it?"},
                            {"from": "gpt", "value": "No <image>."}]})");
  CHECK(images(c) == "0 photos/1.png, 0 photos/2.png");
  CHECK(contents(c) ==
        "[{'type': 'image'}, {'type': 'text', 'text': '\\nWhat, unlike '}, {'type': 'image'}, "
        "{'type': 'text', 'text': ', is it?'}]\nNo <image>.\n");
}

TEST_CASE("images that no message mentions come before the first text of the user") {
  for (const char* const content : {R"("What?")", R"([{"type": "text", "text": "What?"}])"}) {
    const Conversation c =
        conversation(R"({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": )" +
                     std::string(content) + R"(}], "file_name": "a.JPG"})");
    CHECK(images(c) == "1 photos/a.JPG");
    CHECK(contents(c) == "s\n[{'type': 'image'}, {'type': 'text', 'text': 'What?'}]\n");
  }
}

TEST_CASE("a record without images keeps its texts, with <image> as text") {
  for (const char* const rest : {"", R"(, "images": [])", R"(, "image": null)", R"(, "file_name": "a.py")"}) {
    const Conversation c = conversation(kUser + R"("<image>"}])" + rest + "}");
    CHECK(c.images.empty());
    CHECK(contents(c) == "<image>\n");
  }
}

TEST_CASE("the images of prompt and completion are numbered through") {
  const ChatRecord record = parse_chat_record(
      R"({"prompt": [{"role": "user", "content": [{"type": "image"}]}],
          "completion": [{"role": "assistant", "content": [{"type": "image", "path": "2.png"}]}],
          "images": ["1.png"]})",
      "f.jsonl:3");
  CHECK(images(record.conversation) == "0 1.png, 1 2.png");
  CHECK(record.prompt_messages == 1);
  CHECK(images(record.conversation.first(1)) == "0 1.png");
}

TEST_CASE("a message can be made of images and a text") {
  Conversation c;
  c.add("user", "hello");
  c.add("user", "<image>", {{.path = "a.png"}, {.bytes = "PNG!"}});
  CHECK(images(c) == "1 a.png, 1 <PNG!>");
  CHECK(contents(c) ==
        "hello\n[{'type': 'image'}, {'type': 'image'}, {'type': 'text', 'text': '<image>'}]\n");
  CHECK(contents(with_parts(c)) ==
        "[{'type': 'text', 'text': 'hello'}]\n" + contents(c).substr(contents(c).find('\n') + 1));
}

TEST_CASE("images that cannot be read as the record says are refused with what to do") {
  const auto part = [](const std::string& value) {
    return error(kUser + R"([{"type": "image", "image": )" + value + "}]}]}");
  };
  CHECK(part("3").starts_with("f.jsonl:3: an image is of type number, must be a path, a data URL"));
  CHECK(part("{}").starts_with("f.jsonl:3: an image has neither bytes nor a path"));
  CHECK(part(R"("https://x/a.png")").ends_with("is on the web: download it, and write its path"));
  CHECK(part(R"("data:image/png,x")").ends_with("the data URL of an image has no ;base64,"));
  CHECK(part(R"({"bytes": "b'x'"})").ends_with("the bytes of an image are not base64"));
  CHECK(part(R"("")").ends_with("the path of an image is empty"));
  const std::string many = error(kUser + R"("<image> <image>"}], "images": ["a.png"]})");
  CHECK(many.starts_with("f.jsonl:3: the record lists 1 image, but its messages show 2: write"));
  CHECK(images(conversation(kUser + R"([{"type": "image"}]}]})")) == "0 <>");
}
