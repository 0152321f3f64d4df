#pragma once
// The settings of other trainers as one table: Hugging Face's Trainer, accelerate, TRL and PEFT,
// bitsandbytes, FSDP and DeepSpeed, torchtune, torchtitan, axolotl, LLaMA-Factory, Megatron, nanoGPT and
// llm.c. A config of ours may not contain their keys: an error names the key to set, since their values often
// mean something else. `train --from` and `train --accelerate` translate whole files by the same rows
// (foreign_import.h).

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace flatshard {

// Values of another trainer, and the value of ours with the same meaning.
struct ForeignValue {
  const char* theirs;  // words for is_among(); true stands for yes, on and 1, too, false for no, off and 0
  const char* ours;    // as in TOML, without quotes; "": no setting is needed; null: there is none
  const char* about = "";  // why no setting is needed, or there is none
  // Our key, if it is not that of the row. Without a dot: sections that the file asks for, or asks to leave
  // out. They are lora for adapters and quant for 4-bit weights.
  const char* key = "";
};

// What becomes of a value that a row does not list.
enum class OtherValues {
  copied,   // it is the value of our key
  paths,    // the same, if it can be a path
  refused,  // it has no counterpart
  ignored,  // it changes nothing that training depends on
};

// Keys that a function of foreign_config.cpp reads, as their meaning depends on other keys or on more than a
// list of values.
enum class ForeignRule {
  none,
  accumulation,  // a factor of the batch
  beta,          // one of two numbers
  chat_ends,     // special tokens, which a chat template has anyway
  more_targets,  // layers with adapters, in several keys
  optimizer,     // a name made of words
  packing,       // an option of packed sequences
  per_epoch,     // a number of events per epoch
  precision,     // a dtype, of several keys with a precedence
  ranks,         // the number of ranks, a factor of the batch
  steps,         // a number of steps, which a strategy may leave without effect
  strategy,      // that strategy
  targets,       // layers with adapters, in one list
  warmup,        // steps, or a fraction of the run
};

struct ForeignKey {
  // Separated by spaces: the last part of a key, or its last parts with dots, in lower case with _. A dot at
  // the end means a section, a * at the end the beginning of a part; these are for all keys that have no
  // spelling of their own.
  const char* spellings;
  const char* key;  // ours; "" if there is none
  OtherValues others = OtherValues::copied;
  std::vector<ForeignValue> values{};  // the first that fits counts
  const char* text = "";               // our value in terms of theirs, or what happens instead
  ForeignRule rule = ForeignRule::none;
};

std::span<const ForeignKey> foreign_keys();

// The row for a key such as "training.Max-Steps"; null if it is not known. The longest match wins.
const ForeignKey* foreign_key(const std::string& key);

// Whether a value in lower case is one of the words, which spaces separate. A * at an end of a word stands
// for any text, and numbers are compared by their value.
bool is_among(const std::string& value, const char* words);

std::string lower(std::string text);
std::vector<std::string> split(const std::string& text, char separator);
// The text as a finite number; nothing if a character does not belong to it.
std::optional<double> number_in(const std::string& text);

}  // namespace flatshard
