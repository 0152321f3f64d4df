#include "tests/fuzz/file_targets.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "checkpoint/tensor_folder.h"
#include "tests/fuzz/promise.h"
#include "tests/fuzz/text_targets.h"
#include "tests/range_bytes.h"
#include "train/models/hf_config.h"
#include "train/save/train_state.h"

namespace flatshard::test {
namespace {

using Bytes = std::span<const std::byte>;

constexpr const char* kFile = "file";

void require(bool holds, const std::string& promise) {
  if (!holds) throw std::logic_error(promise);
}

std::string_view text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

// The message of an Error of the work; any other exception is a failure.
template <class Work>
std::string refusal(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    require(*error.what() != '\0', "an Error says nothing");
    return error.what();
  }
  return "";
}

// The tensors are contiguous from the header to the end of the file.
void check_entries(const SafetensorsContent& content, int64_t at, int64_t file_bytes) {
  for (const SafetensorsEntry& entry : content.entries) {
    require(entry.bytes.begin == at, "tensors overlap or leave a hole");
    require(entry.bytes.size >= 0 && entry.bytes.size <= file_bytes - at, "a tensor leaves the file");
    at += entry.bytes.size;
    for (const int64_t extent : entry.shape) require(extent >= 0, "an extent is negative");
  }
  require(at == file_bytes, "tensors end before the file");
}

std::string try_safetensors(Bytes bytes) {
  const int64_t size = std::ssize(bytes);
  return refusal([&] {
    const size_t header = safetensors_header_bytes(bytes, size);
    check_entries(parse_safetensors(bytes.first(header), size), static_cast<int64_t>(header), size);
  });
}

// A folder with two files of tensors, a and b, and c, and any index.
class IndexedFolder {
 public:
  static constexpr const char* kPath = "fuzz_index";

  IndexedFolder() {
    std::filesystem::create_directories(kPath);
    write_tensors("model-00001-of-00002.safetensors", {{"a", DType::f32, {2}}, {"b", DType::u8, {3}}});
    write_tensors("model-00002-of-00002.safetensors", {{"c", DType::bf16, {2, 2}}});
  }
  TensorFolder open(std::string_view index) const {
    std::ofstream(std::string(kPath) + "/model.safetensors.index.json", std::ios::binary) << index;
    return TensorFolder(kPath, "model");
  }

 private:
  static void write_tensors(const std::string& name, const std::vector<SafetensorsSpec>& specs) {
    const SafetensorsLayout layout(specs);
    SafetensorsWriter(std::string(kPath) + "/" + name, layout, true).finish();
  }
};

// Every named tensor is found in a file of the folder.
std::string try_index(Bytes bytes) {
  SafetensorsIndex index;
  const std::string malformed = refusal([&] { index = parse_safetensors_index(text_of(bytes)); });
  if (!malformed.empty()) return malformed;
  static const IndexedFolder folder;
  return refusal([&] {
    const TensorFolder tensors = folder.open(text_of(bytes));
    require(tensors.entries().size() == index.weight_map.size(), "a tensor of the index is lost");
    for (const auto& file : tensors.files())
      require(std::filesystem::path(file->path()).parent_path() == IndexedFolder::kPath,
              "a file lies outside the folder");
    for (const auto& [name, entry] : tensors.entries()) range_bytes(entry->bytes);
  });
}

// A value that is read and can be written round-trips.
std::string try_config_json(Bytes bytes) {
  ModelConfig config;
  const std::string reason = refusal([&] { config = parse_hf_config(text_of(bytes), kFile); });
  if (!reason.empty()) return reason;
  const std::string written = hf_config_json(config, DType::f32);
  require(hf_config_json(parse_hf_config(written, kFile), DType::f32) == written,
          "a config that was written is read as another one");
  return "";
}

std::string try_train_state(Bytes bytes) {
  TrainState state;
  const std::string reason = refusal([&] { state = parse_train_state(text_of(bytes), kFile); });
  if (!reason.empty()) return reason;
  const std::string written = to_json(state);
  require(to_json(parse_train_state(written, kFile)) == written,
          "a state that was written is read as another one");
  return "";
}

// The character, which templates cannot produce, appears only in ranges that the rendering marks as data.
void check_sources(const Rendering& rendering, const std::string& character) {
  size_t begin = 0;
  const auto outside = [&](size_t end) {
    return rendering.text.substr(begin, end - begin).find(character) == std::string::npos;
  };
  for (const TextSpan& span : rendering.data) {
    require(span.begin >= begin && span.begin < span.end && span.end <= rendering.text.size(),
            "the data of a rendering is out of order");
    require(outside(span.begin), "a rendering calls data a part of the template");
    begin = span.end;
  }
  require(outside(rendering.text.size()), "a rendering calls data a part of the template");
}

std::string try_chat_template(Bytes bytes) {
  constexpr char kCharacter[] = "\xee\x80\x80";  // U+E000, for private use
  const std::string text(text_of(bytes));
  const bool can_make_it_up = text.find(kCharacter) != text.npos || text.find('\\') != text.npos;
  Conversation conversation;
  conversation.add("user", std::string("a") + kCharacter + " b\n\n" + kCharacter + "'\"<C> ");
  conversation.add("assistant", kCharacter);
  return refusal([&] {
    const ChatTemplate chat(text, kFile, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    const Rendering rendering = chat.render(
        conversation, {.settings = {.date = "2024-02-29", .limits = {.steps = 100'000, .depth = 500}}});
    if (!can_make_it_up) check_sources(rendering, kCharacter);
  });
}

// A tokenizer.json, a zero byte, and a text: ids are in the vocabulary, begins ascend, and decoding piece by
// piece gives the same text.
std::string try_tokenizer(Bytes bytes) {
  const std::string_view all = text_of(bytes);
  const size_t end = std::min(all.find('\0'), all.size());
  const std::string_view text = all.substr(std::min(end + 1, all.size()));
  return refusal([&] {
    const Tokenizer tokenizer = Tokenizer::from_json(all.substr(0, end), kFile);
    const Encoding encoding = tokenizer.encode(text);
    require(encoding.begins.size() == encoding.ids.size(), "tokens and begins differ in number");
    StreamDecoder decoder(tokenizer);
    std::string decoded;
    uint32_t before = 0;
    for (size_t i = 0; i < encoding.ids.size(); ++i) {
      require(encoding.ids[i] >= 0 && encoding.ids[i] < tokenizer.vocab(), "an id is outside the vocabulary");
      require(encoding.begins[i] >= before && encoding.begins[i] <= text.size(), "a begin is out of order");
      before = encoding.begins[i];
      decoded += decoder.take(encoding.ids[i]);
      require(valid_utf8_prefix(decoded) == decoded.size(),
              "a piece of decoded text ends inside of a character");
    }
    require(decoded + decoder.rest() == tokenizer.decode(encoding.ids), "text decoded in pieces differs");
    const std::vector<TextRange> plain{{0, text.size()}};
    tokenizer.encode(text, false, plain);
    require(tokenizer.encode(text).ids == encoding.ids, "a text has two encodings");
  });
}

constexpr FileTarget kTargets[] = {
    {"chat_template", try_chat_template}, {"safetensors", try_safetensors}, {"index", try_index},
    {"config", try_config_json},          {"train_state", try_train_state}, {"tokenizer", try_tokenizer}};

}  // namespace

std::span<const FileTarget> file_targets() { return kTargets; }

const FileTarget& file_target(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTargets), std::end(kTargets),
                                   [&](const FileTarget& target) { return target.name == name; });
  std::string names;
  for (const FileTarget& target : kTargets) names += str(names.empty() ? "" : ", ", target.name);
  check(found != std::end(kTargets), "\"", std::string(name), "\" is no target, must be one of ", names);
  return *found;
}

}  // namespace flatshard::test
