#pragma once
// What a user may have meant by a key that does not exist: a setting as another trainer spells it, or the
// most similar key.

#include <string>
#include <vector>

#include "train/config/config.h"

namespace flatshard {

struct UnknownKey {
  std::string message;  // "unknown key train.step; the nearest known one is train.steps"
  std::string meant;    // "train.steps"; "" if there is none
};

UnknownKey unknown_key(const std::vector<Field>& known, const std::string& key);

// The known section most similar to this one.
std::string nearest_section(const std::vector<Field>& known, const std::string& section);

}  // namespace flatshard
