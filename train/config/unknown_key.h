#pragma once
// Suggestions for a key that does not exist: a setting as another trainer spells it, or a misspelt key of
// ours. Other keys are not guessed at.

#include <string>
#include <vector>

#include "train/config/fields.h"

namespace flatshard {

struct UnknownKey {
  std::string message;  // "unknown key train.step; the nearest known one is train.steps"
  std::string meant;    // "train.steps"; "" if there is none, or more than one
};

UnknownKey unknown_key(const std::vector<Field>& known, const std::string& key);

// "unknown section [optimiser]; the nearest known one is [optimizer]", or a list of the sections.
std::string unknown_section(const std::vector<Field>& known, const std::string& section);

}  // namespace flatshard
