#pragma once
// Turns records into samples: token ids, and a mask of the trained ones. In a text all tokens are trained; in
// a prompt with its completion, the completion is; in a conversation, rendered by a chat template, the
// assistant's turns are. Const, and safe for use by several threads.

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
  std::string chat_template{};  // a built-in name or a file; empty: the template of the tokenizer's folder
  std::string date{};           // date printed by chat templates, as YYYY-MM-DD; empty: today
  std::string text_field = "text";  // text member of JSON lines that are not conversations
  TrainOn train_on = TrainOn::assistant;
  int64_t image_longest_edge = 0;            // longest edge of images; 0: as in the tokenizer's folder
  RecordKind records = RecordKind::samples;  // see dataset.h
};

// The texts of a record without a template: the messages of a conversation, or a prompt and its completion.
// An Error begins with `record.where`.
std::vector<std::string> texts_of(const Record& record, const std::string& text_field);

struct Sample {
  std::vector<int32_t> tokens{};
  std::vector<uint8_t> trained{};  // empty: all tokens
  std::vector<DocumentImage> images{};
  std::vector<std::string> warnings{};
};

// Whether the chat template of the options prints a date; false if the template cannot be read.
bool prints_date(const EncoderOptions& options);

class SampleEncoder {
 public:
  explicit SampleEncoder(const EncoderOptions& options);
  ~SampleEncoder();
  SampleEncoder(const SampleEncoder&) = delete;
  SampleEncoder& operator=(const SampleEncoder&) = delete;

  int64_t vocab() const;
  RecordKind records() const { return options_.records; }
  // The rules by which the model of the tokenizer's folder reads images; nothing if it reads none.
  const std::optional<ImageInput>& image_input() const;
  // Decodes images to check them, but does not keep them. An Error begins with `record.where`.
  Sample encode(const Record& record) const;
  // The text of some tokens, such as the tokens of a sample.
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
