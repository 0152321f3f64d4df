#pragma once
// How other trainers spell settings: Hugging Face's Trainer, accelerate, TRL and PEFT, bitsandbytes, FSDP and
// DeepSpeed, torchtune, torchtitan, axolotl, LLaMA-Factory, Megatron, nanoGPT and llm.c. A config of
// ours may not contain them: an error names the key to set, since their values often mean something else.
// foreign_config.h translates whole files by this table.

#include <span>
#include <string>

namespace flatshard {

struct ForeignKey {
  // In lower case with _: the last part of a key, or its last parts with dots. With a dot at the end a
  // section, and with a * at the end the beginning of a part, for all keys that have no row of their own.
  const char* spelling;
  const char* key;    // ours; "" if there is none
  const char* value;  // ours, quoted, in terms of theirs; "": the same. Without a key: what happens instead
  // Their values, in lower case and separated by spaces, for which nothing needs to be set. Null: without a
  // key all values, since what is trained does not depend on the setting; with a key none.
  const char* same = nullptr;

  // Whether this is one of them. A row with a key must name some.
  bool means_same(const std::string& theirs) const;
};

std::span<const ForeignKey> foreign_keys();

// The row for a key such as "training.Max-Steps"; null if it is not known. The longest match wins.
const ForeignKey* foreign_key(const std::string& key);

}  // namespace flatshard
