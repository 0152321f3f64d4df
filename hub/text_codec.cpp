#include "hub/text_codec.h"

#include <charconv>
#include <filesystem>
#include <sstream>

#include "hub/hf_config.h"
#include "runtime/check.h"
#include "runtime/json.h"
#include "runtime/whole_file.h"
#include "text/data/corpus.h"
#include "text/jinja/template_date.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

bool has_tokenizer_file(const fs::path& folder) {
  for (const char* name : {"tokenizer.json", "vocab.json", "encoder.json"})
    if (fs::exists(folder / name)) return true;
  return false;
}

bool has_template_file(const fs::path& folder) {
  if (fs::exists(folder / "chat_template.jinja")) return true;
  const fs::path config = folder / "tokenizer_config.json";
  if (!fs::exists(config)) return false;
  const Json json = parse_json_or_discard<Json>(read_whole_file(config.string(), kMostHfConfigBytes));
  return json.is_object() && json.contains("chat_template");
}

// Reads the member eos_token_id of a file: a number, a list of numbers, or null. Returns nothing if it is
// absent.
std::optional<std::vector<int32_t>> end_tokens_of(const fs::path& file, int64_t vocab) {
  if (!fs::exists(file)) return {};
  const Json json = parse_json_or_discard<Json>(read_whole_file(file.string(), kMostHfConfigBytes));
  check(json.is_object(), file.string(), ": is not a JSON object");
  const auto found = json.find("eos_token_id");
  if (found == json.end() || found->is_null()) return {};
  std::vector<int32_t> tokens;
  for (const Json& id : found->is_array() ? *found : Json::array({*found})) {
    check(id.is_number_integer() && id >= 0 && id < vocab, file.string(), ": eos_token_id is ", found->dump(),
          ", must be a token, or a list of tokens, below the vocabulary size of ", vocab);
    tokens.push_back(id.get<int32_t>());
  }
  return tokens;
}

std::vector<int32_t> numbers_of(const std::string& text, int64_t vocab) {
  std::vector<int32_t> tokens;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    int32_t token = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
    check(error == std::errc() && end == word.data() + word.size() && token >= 0 && token < vocab, "\"", word,
          "\" is not a token number: the vocabulary is ", vocab, ", so tokens are 0 to ", vocab - 1);
    tokens.push_back(token);
  }
  return tokens;
}

}  // namespace

TextCodec::TextCodec(const ModelSource& source, int64_t vocab, const std::string& chat_template,
                     const std::string& date)
    : TextCodec(tokenizer_folder(source), source.folder, vocab, chat_template, date) {}

TextCodec::TextCodec(const std::string& folder, const std::string& model, int64_t vocab,
                     const std::string& chat_template, const std::string& date)
    : folder_(folder), vocab_(vocab) {
  if (folder.empty() || !has_tokenizer_file(folder)) return;
  tokenizer_ = std::make_unique<Tokenizer>(folder);
  check(tokenizer_->vocab() <= vocab, folder, ": the tokenizer has ", tokenizer_->vocab(),
        " tokens, but the model's vocabulary is ", vocab);
  if (!chat_template.empty() || has_template_file(folder))
    template_ = ChatTemplate::chosen(chat_template, folder);
  std::optional<std::vector<int32_t>> configured;
  for (const fs::path& file : {fs::path(folder) / "generation_config.json",
                               fs::path(model) / "generation_config.json", fs::path(model) / "config.json"})
    if (!configured && file.has_parent_path()) configured = end_tokens_of(file, vocab);
  if (configured) end_tokens_ = *configured;
  if (tokenizer_->eos()) end_tokens_.push_back(*tokenizer_->eos());
  image_input_ = read_image_input(model.empty() ? folder : model);
  if (template_)
    chats_.emplace(
        *tokenizer_, *template_,
        ChatEncoder::Options{.settings = {.date = date.empty() ? todays_date() : date, .limits = {}},
                             .images = image_input_});
}

std::vector<int32_t> TextCodec::encode(const std::string& text) const {
  if (tokenizer_) return tokenizer_->encode(text).ids;
  return vocab_ == kByteVocab ? byte_tokens(text) : numbers_of(text, vocab_);
}

std::vector<int32_t> TextCodec::encode(const Conversation& conversation) const {
  check(has_tokenizer(), folder_.empty() ? "the model" : folder_,
        ": has no tokenizer, which conversations need");
  check(has_chat_template(), folder_,
        ": has no chat template, which conversations need; name one with --chat-template, or for a run in "
        "data.chat_template");
  return chats_->prompt(conversation);
}

std::string TextCodec::decode(std::span<const int32_t> tokens) const {
  if (tokenizer_) return tokenizer_->decode(tokens, true);
  std::string text;
  for (const int32_t token : tokens) text += text_of(token);
  return text;
}

std::string TextCodec::text_of(int32_t token) const {
  return vocab_ == kByteVocab ? std::string(1, static_cast<char>(token)) : std::to_string(token) + ' ';
}

TextCodec::Stream::Stream(const TextCodec& codec) : codec_(codec) {
  if (codec.tokenizer_) decoder_.emplace(*codec.tokenizer_, true);
}
std::string TextCodec::Stream::take(int32_t token) {
  return decoder_ ? decoder_->take(token) : codec_.text_of(token);
}
std::string TextCodec::Stream::rest() { return decoder_ ? decoder_->rest() : ""; }

}  // namespace flatshard
