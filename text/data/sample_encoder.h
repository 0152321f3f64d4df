#pragma once
// Turns records into samples: token ids, and which of them are trained. A record is a text, whose tokens are
// all trained; a prompt with its completion, of which the completion is trained; or a conversation, rendered
// by a chat template, of which the assistant's turns are trained. Const, and safe for use by several threads.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/chat/train_on.h"
#include "text/data/corpus.h"
#include "text/data/records.h"
#include "text/data/token_images.h"
#include "text/images/image_input.h"

namespace flatshard {

struct EncoderOptions {
  std::string tokenizer{};      // a folder with a tokenizer, or a tokenizer.json; empty: a token is a byte
  std::string chat_template{};  // a built-in name or a file; empty: that of the tokenizer's folder
  std::string date{};           // that chat templates print, as YYYY-MM-DD; empty: today's
  std::string text_field = "text";  // of JSON lines that are not conversations
  TrainOn train_on = TrainOn::assistant;
  int64_t image_longest_edge = 0;  // of images that the model reads; 0: that of the tokenizer's folder
  RecordKind records = RecordKind::samples;  // what record_documents.h makes documents of
};

// The texts of a record without a template: of a conversation those of its messages, of a prompt with its
// completion both. An Error begins with the record's `where`.
std::vector<std::string> texts_of(const Record& record, const std::string& text_field);

struct Sample {
  std::vector<int32_t> tokens{};
  std::vector<uint8_t> trained{};  // empty: all tokens
  std::vector<DocumentImage> images{};
  std::vector<std::string> warnings{};
};

// Whether the chat template of the options prints a date; a template that cannot be read does not.
bool prints_date(const EncoderOptions& options);

class SampleEncoder {
 public:
  explicit SampleEncoder(const EncoderOptions& options);
  ~SampleEncoder();
  SampleEncoder(const SampleEncoder&) = delete;
  SampleEncoder& operator=(const SampleEncoder&) = delete;

  int64_t vocab() const;
  RecordKind records() const { return options_.records; }
  // How the model of the tokenizer's folder reads images; nothing if it reads none.
  const std::optional<ImageInput>& image_input() const;
  // Decodes images, and keeps none. An Error begins with the record's `where`.
  Sample encode(const Record& record) const;
  // The text of tokens, such as those of a sample.
  std::string decode(const std::vector<int32_t>& tokens) const;
  // The settings that samples depend on, as members of a JSON object: "tokenizer":"...",...
  std::string identity() const;

 private:
  struct Parts;
  Sample of_text(const std::string& text) const;
  Sample of_conversation(const Record& record) const;

  EncoderOptions options_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace flatshard
