#include "train/config/unknown_key.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/spelling.h"
#include "train/config/foreign_keys.h"

namespace flatshard {
namespace {

std::string name_in_section(const std::string& key) { return key.substr(key.rfind('.') + 1); }
std::string stage_of(const std::string& key) { return key.substr(0, key.rfind('.')); }

// The known key most similar to this one. The same name in another section ranks above a similar spelling.
std::string nearest_key(const std::vector<Field>& known, const std::string& key) {
  std::string nearest;
  size_t best = SIZE_MAX;
  for (const Field& field : known) {
    const size_t distance =
        name_in_section(field.key) == name_in_section(key) ? 1 : edit_distance(field.key, key);
    if (distance < best) best = distance, nearest = field.key;
  }
  return nearest;
}

// "train.steps (optimizer steps)", with the value in terms of the other trainer's, and the start of the help.
std::string use(const std::vector<Field>& known, const ForeignKey& row) {
  const auto field =
      std::find_if(known.begin(), known.end(), [&](const Field& f) { return f.key == row.key; });
  const std::string about = field->help.substr(0, field->help.find_first_of(":;"));
  return str(row.key, *row.value ? " = " : "", row.value, " (", about, ")");
}

}  // namespace

UnknownKey unknown_key(const std::vector<Field>& known, const std::string& key) {
  const std::string unknown = str("unknown key ", key, "; ");
  const ForeignKey* const row = foreign_key(key);
  if (row && *row->key) return {unknown + "use " + use(known, *row), row->key};
  if (row) return {unknown + "there is no such setting: " + row->value, ""};
  const std::string nearest = nearest_key(known, key);
  return {unknown + "the nearest known one is " + nearest, nearest};
}

std::string nearest_section(const std::vector<Field>& known, const std::string& section) {
  std::string nearest;
  size_t best = SIZE_MAX;
  for (const Field& field : known)
    if (const size_t distance = edit_distance(stage_of(field.key), section); distance < best)
      best = distance, nearest = stage_of(field.key);
  return nearest;
}

}  // namespace flatshard
