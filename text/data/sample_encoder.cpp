#include "text/data/sample_encoder.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "runtime/check.h"
#include "runtime/json.h"
#include "text/chat/chat_sample.h"
#include "text/jinja/template_date.h"
#include "text/tokenizer/tokenizer.h"

namespace flatshard {
namespace fs = std::filesystem;

namespace {

bool is_conversation(const Record& record, const std::string& text_field) {
  const auto has = [&](std::initializer_list<const char*> names) {
    return has_member(record.text, names, record.where);
  };
  if (!has({"messages", "conversations", "prompt", "instruction"})) return false;
  // Alpaca's records may also have their text with headers. Then the presence of text_field decides.
  return has({"messages", "conversations", "prompt"}) || !has({text_field.c_str()});
}

std::string folder_of(const EncoderOptions& options) {
  const fs::path tokenizer = options.tokenizer;
  return (fs::is_directory(tokenizer) ? tokenizer : tokenizer.parent_path()).string();
}

// Returns the facts of a record's images, and sets the images' sizes.
std::vector<DocumentImage> described(const Record& record, std::vector<ShownImage>& shown) {
  std::vector<DocumentImage> images;
  for (ShownImage& image : shown) {
    try {
      const ImageFacts facts = facts_of(image.source);
      image.size = facts.size;
      images.push_back({.extent = {}, .source = image.source, .facts = facts, .where = record.where});
    } catch (const Error& error) {
      throw Error(str(record.where, ": ", error.what(),
                      "; prepare --skip-bad counts such records and leaves them out"),
                  error.where);
    }
  }
  return images;
}

}  // namespace

std::vector<std::string> texts_of(const Record& record, const std::string& field) {
  if (!record.is_json) return {record.text};
  if (!is_conversation(record, field)) return {text_field(record.text, field, record.where)};
  const ChatRecord chat = parse_chat_record(record.text, record.where);
  if (chat.conversation.messages.empty()) return {chat.prompt, chat.completion};
  std::vector<std::string> texts;
  for (const JinjaValue& message : chat.conversation.messages)
    for (std::string& text : texts_of_content(message)) texts.push_back(std::move(text));
  return texts;
}

bool prints_date(const EncoderOptions& options) {
  if (options.tokenizer.empty()) return false;
  try {
    return ChatTemplate::chosen(options.chat_template, folder_of(options)).prints_date();
  } catch (const Error&) {
    return false;
  }
}

struct SampleEncoder::Parts {
  std::optional<Tokenizer> tokenizer;  // empty: a token is a byte
  std::optional<ChatTemplate> chat;
  std::optional<ChatEncoder> conversations;
  std::string why_no_chat;  // reason why there is no chat template; "" if there is one
  std::optional<ImageInput> images;
};

SampleEncoder::SampleEncoder(const EncoderOptions& options)
    : options_(options), parts_(std::make_unique<Parts>()) {
  Parts& p = *parts_;
  check(!options.tokenizer.empty() || options.chat_template.empty(), "the chat template ",
        options.chat_template, " needs a tokenizer, but none is given");
  check(options.records == RecordKind::samples || options.train_on != TrainOn::all, "of ", options.records,
        " only the answers are trained: omit train_on = \"all\"");
  p.why_no_chat = "conversations and prompts need a tokenizer; bytes have no special tokens";
  if (options.tokenizer.empty()) return;
  p.tokenizer.emplace(options.tokenizer);
  p.images = read_image_input(folder_of(options), options.image_longest_edge);
  check(p.images || options.image_longest_edge == 0, "data.image_longest_edge = ", options.image_longest_edge,
        ", but the model of ", options.tokenizer, " reads no images: omit it");
  try {
    p.chat.emplace(ChatTemplate::chosen(options.chat_template, folder_of(options)));
  } catch (const Error& error) {
    // A folder without a template can still encode texts.
    if (!options.chat_template.empty()) throw;
    p.why_no_chat = error.what();
    return;
  }
  if (options_.date.empty()) options_.date = todays_date();
  p.conversations.emplace(*p.tokenizer, *p.chat,
                          ChatEncoder::Options{.train_on = options.train_on,
                                               .settings = {.date = options_.date, .limits = {}},
                                               .images = p.images});
}

SampleEncoder::~SampleEncoder() = default;

int64_t SampleEncoder::vocab() const { return parts_->tokenizer ? parts_->tokenizer->vocab() : kByteVocab; }

const std::optional<ImageInput>& SampleEncoder::image_input() const { return parts_->images; }

Sample SampleEncoder::encode(const Record& record) const {
  if (!record.is_json) return of_text(record.text);
  return is_conversation(record, options_.text_field)
             ? of_conversation(record)
             : of_text(text_field(record.text, options_.text_field, record.where));
}

Sample SampleEncoder::of_conversation(const Record& record) const {
  check(parts_->conversations.has_value(), record.where, ": ", parts_->why_no_chat);
  ChatRecord read = parse_chat_record(record.text, record.where, record.folder);
  std::vector<ShownImage>& shown = read.conversation.images;
  check(shown.empty() || parts_->images, record.where,
        ": has images, but no config.json beside the tokenizer ", options_.tokenizer,
        " names a model that reads them: name the folder of such a model, or remove the images");
  std::vector<DocumentImage> images = described(record, shown);
  ChatSample chat = parts_->conversations->sample(read, record.where);
  for (size_t i = 0; i < images.size(); ++i) images[i].extent = chat.images[i];
  Sample sample{.tokens = std::move(chat.ids), .images = std::move(images)};
  if (options_.train_on != TrainOn::all || !sample.images.empty()) sample.trained = std::move(chat.mask);
  const auto warn = [&](bool happened, const char* text) {
    if (happened) sample.warnings.push_back(text);
  };
  warn(chat.double_bos, "the chat template and the tokenizer both add a BOS token; one was kept");
  warn(chat.rewrites_history,
       "the chat template renders earlier turns differently when later ones follow, so turns are trained in "
       "a context that the model will not see; train_on = \"last\" avoids that");
  warn(chat.untrained_end,
       "a turn is trained without the special token that ends it, so the model does not learn to stop");
  warn(chat.split_prompt,
       "the tokens of prompt and completion do not begin with the tokens of the prompt alone");
  return sample;
}

std::string SampleEncoder::decode(const std::vector<int32_t>& tokens) const {
  if (parts_->tokenizer) return parts_->tokenizer->decode(tokens);
  std::string text;
  for (const int32_t token : tokens) text += static_cast<char>(token);
  return text;
}

std::string SampleEncoder::identity() const {
  nlohmann::ordered_json all{{"tokenizer", parts_->tokenizer ? parts_->tokenizer->identity() : "bytes"}};
  if (parts_->tokenizer && parts_->tokenizer->eos()) all["eos"] = *parts_->tokenizer->eos();
  all["text_field"] = options_.text_field;
  if (parts_->chat) {
    all["chat_template"] = parts_->chat->identity();
    if (parts_->chat->prints_date()) all["date"] = options_.date;
    all["train_on"] = name_of(options_.train_on);
  }
  if (options_.records != RecordKind::samples) all["records"] = name_of(options_.records);
  if (parts_->images) {
    all["images"] = parse_json<nlohmann::ordered_json>(to_json(*parts_->images));
    all["image_table"] = 2;  // version 2 of the table records which images are objects
  }
  const std::string text = json_text(all);
  return text.substr(1, text.size() - 2);
}

Sample SampleEncoder::of_text(const std::string& text) const {
  if (!parts_->tokenizer || text.empty()) return {.tokens = byte_tokens(text)};
  Sample sample{.tokens = parts_->tokenizer->encode(text).ids};
  const std::optional<int32_t> eos = parts_->tokenizer->eos();
  if (eos && (sample.tokens.empty() || sample.tokens.back() != *eos)) sample.tokens.push_back(*eos);
  return sample;
}

}  // namespace flatshard
