#pragma once
// The settings of other trainers in their spelling: Hugging Face's Trainer, accelerate, TRL and PEFT,
// bitsandbytes, FSDP and DeepSpeed, torchtune, torchtitan, axolotl, LLaMA-Factory, Megatron, nanoGPT and
// llm.c. A config of ours may not contain them: an error names the key to set, since their values often mean
// something else. foreign_config.h translates whole files by this table.

#include <span>
#include <string>

namespace flatshard {

struct ForeignKey {
  // The last part of a key, or its last parts with dots, in lower case with _. A dot at the end means a
  // section, a * at the end the beginning of a part; such a row is for all keys that have no row of their
  // own.
  const char* spelling;
  const char* key;  // our key; "" if there is none
  // Our value, quoted, in terms of theirs; "": the same value. Without a key: text about what happens
  // instead.
  const char* value;
  // The values of theirs, in lower case and separated by spaces, that need no setting here. Null: in a row
  // without a key all values, since training does not depend on the setting; in a row with a key none.
  const char* same = nullptr;

  // Whether `theirs` is one of these values. To be called on a row with a key only if `same` is not null.
  bool means_same(const std::string& theirs) const;
};

std::span<const ForeignKey> foreign_keys();

// The row for a key such as "training.Max-Steps"; null if it is not known. The longest match wins.
const ForeignKey* foreign_key(const std::string& key);

}  // namespace flatshard
