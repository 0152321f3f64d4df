#include "train/config/unknown_key.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "runtime/check.h"
#include "runtime/spelling.h"
#include "train/config/foreign_import.h"

namespace flatshard {
namespace {

std::vector<std::string> sections(const std::vector<Field>& known) {
  std::vector<std::string> all;
  for (const Field& field : known)
    if (const std::string section = section_of(field.key);
        std::find(all.begin(), all.end(), section) == all.end())
      all.push_back(section);
  return all;
}

struct Nearest {
  std::vector<std::string> keys;  // the nearest keys, all equally near
  bool same_section = false;
};

// The known keys that `key` may be a misspelling of: similar names in its section, which may be misspelt too;
// else the same name in other sections; else, unless its section is unknown, similar names in any section.
Nearest nearest_keys(const std::vector<Field>& known, const std::string& key) {
  const std::string section = section_of(key), name = name_in_section(key);
  const std::vector<std::string> all = sections(known);
  const bool has_section = !section.empty() && std::find(all.begin(), all.end(), section) == all.end();
  constexpr size_t kElsewhere = 100;  // larger than any distance within a section
  size_t best = SIZE_MAX;
  Nearest nearest;
  for (const Field& field : known) {
    const std::optional<size_t> of_name = misspelling(name, name_in_section(field.key)),
                                of_section = misspelling(section, section_of(field.key));
    if (!of_name || (!of_section && *of_name > 0 && has_section)) continue;
    const size_t distance = *of_name + of_section.value_or(kElsewhere);
    if (distance > best) continue;
    if (distance < best) nearest = {.keys = {}, .same_section = of_section.has_value()};
    best = distance;
    nearest.keys.push_back(field.key);
  }
  return nearest;
}

// "a, b and c"
std::string in_words(const std::vector<std::string>& words) {
  std::string text = words.front();
  for (size_t i = 1; i < words.size(); ++i) text += (i + 1 < words.size() ? ", " : " and ") + words[i];
  return text;
}

// "train.steps (optimizer steps)": the key, our values for the other trainer's, and the start of the help.
std::string use(const std::vector<Field>& known, const ForeignKey& row) {
  const std::string help = field_named(known, row.key)->help, meaning = meaning_of(row, known);
  return str(row.key, meaning.empty() ? "" : " = ", meaning, " (", help.substr(0, help.find_first_of(":;")),
             ")");
}

}  // namespace

UnknownKey unknown_key(const std::vector<Field>& known, const std::string& key) {
  const std::string unknown = str("unknown key ", key, "; ");
  const ForeignKey* const row = foreign_key(key);
  if (row && *row->key) return {unknown + "use " + use(known, *row), row->key};
  const Nearest nearest = nearest_keys(known, key);
  if (row && !nearest.same_section) return {str(unknown, "there is no such setting: ", row->text), ""};
  if (nearest.keys.empty()) return {unknown + "there is none like it; train --help lists all keys", ""};
  return {str(unknown, "the nearest known ", nearest.keys.size() > 1 ? "ones are " : "one is ",
              in_words(nearest.keys)),
          nearest.keys.size() > 1 ? "" : nearest.keys.front()};
}

std::string unknown_section(const std::vector<Field>& known, const std::string& section) {
  const std::vector<std::string> all = sections(known);
  const std::string similar = similar_word(section, all);
  if (!similar.empty())
    return str("unknown section [", section, "]; the nearest known one is [", similar, ']');
  std::string list;
  for (const std::string& name : all) list += str(list.empty() ? "[" : ", [", name, ']');
  return str("unknown section [", section, "]; there are ", list);
}

}  // namespace flatshard
