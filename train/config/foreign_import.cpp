#include "train/config/foreign_import.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <type_traits>
#include <utility>

#include "runtime/check.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

using Toml = std::optional<std::string>;

template <class Member, class... Values>
constexpr bool kHolds = (std::is_same_v<Member, Values*> || ...);

Toml list_of(std::vector<std::string> items, bool quotes) {
  std::string text;
  for (const std::string& item : items) {
    if (!quotes && !number_in(item)) return {};
    text += (text.empty() ? "" : ", ") + (quotes ? quoted(item) : item);
  }
  return '[' + text + ']';
}

std::string decimal(double n) {
  const std::string text = str(n);
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

// "must be true or false"
std::string demand_of(const Field& field) {
  const auto demand = []<class T>(const T&) {
    return kHolds<T, bool, std::optional<bool>>                             ? "true or false"
           : kHolds<T, int64_t, std::optional<int64_t>>                     ? "a whole number"
           : kHolds<T, double, std::optional<double>, std::vector<int64_t>> ? "a number"
                                                                            : "one of ";
  };
  std::string text = str("must be ", std::visit(demand, field.member)), comma;
  for (const std::string& name : field.names()) text += std::exchange(comma, ", ") + name;
  return text;
}

// The entry of the row for a value, or for a list whose values all need no setting; null if none is listed.
const ForeignValue* listed_value(const ForeignKey& row, const Given& g) {
  const auto listed = [&](const std::string& value) {
    const auto found = std::find_if(row.values.begin(), row.values.end(),
                                    [&](const ForeignValue& v) { return is_among(value, v.theirs); });
    return found == row.values.end() ? nullptr : &*found;
  };
  const ForeignValue* found = nullptr;
  for (const std::string& value : g.items.empty() ? std::vector{g.value} : g.items) {
    found = listed(lower(value));
    if (const std::optional<bool> on = flag_in(value); !found && on) found = listed(*on ? "true" : "false");
    const bool needs_nothing = found && found->ours && *found->ours == 0;
    if (g.items.size() > 1 && !needs_nothing) return nullptr;
  }
  return found;
}

std::string toml_of(const ForeignValue& value, const Field& field) {
  const std::vector<std::string> items = split(value.ours, ',');
  if (number_in(value.ours)) return value.ours;
  return toml_for(field, value.ours, items.size() > 1 ? items : std::vector<std::string>{}).value();
}

}  // namespace

std::optional<bool> flag_in(const std::string& text) {
  const bool on = is_among(lower(text), "true yes on 1"), off = is_among(lower(text), "false no off none 0");
  return on || off ? std::optional(on) : std::nullopt;
}

std::optional<std::string> toml_for(const Field& field, const std::string& value,
                                    const std::vector<std::string>& items) {
  const std::optional<double> n = number_in(value);
  const std::optional<bool> on = flag_in(value);
  const std::vector<std::string> names = field.names(), all = items.empty() ? std::vector{value} : items;
  return std::visit(
      [&]<class T>(const T&) -> Toml {
        if constexpr (kHolds<T, bool, std::optional<bool>>) return on ? Toml(*on ? "true" : "false") : Toml();
        if constexpr (kHolds<T, int64_t, std::optional<int64_t>>)
          return n && *n == std::floor(*n) && std::abs(*n) <= 1e15 ? Toml(str(static_cast<int64_t>(*n)))
                                                                   : Toml();
        if constexpr (kHolds<T, double, std::optional<double>>) return n ? Toml(decimal(*n)) : Toml();
        if constexpr (kHolds<T, std::vector<int64_t>>) return list_of(all, false);
        if constexpr (kHolds<T, std::vector<std::string>>) return list_of(all, true);
        if constexpr (kHolds<T, DataFiles, ModulePatterns>)
          return items.empty() ? quoted(value) : list_of(all, true);
        if constexpr (std::is_same_v<T, Choice> || kHolds<T, std::string>) {
          const bool is_name =
              names.empty() || std::find(names.begin(), names.end(), lower(value)) != names.end();
          if (items.empty() && on && field.spelling == Spelling::or_flag) return *on ? "true" : "false";
          if (items.empty() && n && field.spelling == Spelling::or_number) return value;
          return is_name && items.empty() ? Toml(quoted(names.empty() ? value : lower(value))) : Toml();
        }
        return {};
      },
      field.member);
}

std::string meaning_of(const ForeignKey& row, const std::vector<Field>& known) {
  std::string words;
  std::set<std::string> seen;
  const auto add = [&](const std::string& part) { words += (words.empty() ? "" : ", ") + part; };
  for (const ForeignValue& value : row.values) {
    const Field* const field = field_named(known, *value.key ? value.key : row.key);
    if (!field || !value.ours || *value.ours == 0) continue;
    const std::string toml = toml_of(value, *field), ours = (*value.key ? field->key + " = " : "") + toml;
    std::string theirs = split(value.theirs, ' ').front();
    std::erase(theirs, '*');
    const bool is_same = toml == flatshard::quoted(theirs) || toml == theirs;
    if (seen.insert(toml).second)
      add(is_same ? ours : theirs.empty() ? "otherwise " + ours : ours + " for " + theirs);
  }
  if (const Field* const field = field_named(known, row.key);
      row.values.empty() && row.others == OtherValues::copied)
    for (const std::string& name : field->names()) add(*toml_for(*field, name));
  return str(words, words.empty() || *row.text == 0 ? "" : "; ", row.text);
}

std::string Given::text() const {
  std::string all;
  for (const std::string& item : items) all += (all.empty() ? "" : ", ") + item;
  return printable(items.empty() ? value : '[' + all + ']');
}

void ForeignImport::translate(const Given& g) {
  const ForeignKey* const row = foreign_key(g.path);
  const ForeignValue* const value = row ? listed_value(*row, g) : nullptr;
  const bool is_path = row && row->others == OtherValues::paths && !flag_in(g.value) && !number_in(g.value);
  const auto is_here = [&] { return str("is ", row->key, " here: ", meaning_of(*row, fields_)); };
  if (g.is_empty())
    leave(g, "is empty");
  else if (const Field* const own = row ? nullptr : own_field(g))
    copy(g, own->key);
  else if (!row)
    refuse(g, "is not known, and may change what is trained");
  else if (row->rule != ForeignRule::none && by_rule(g, *row, value))
    return;
  else if (value && value->ours)
    take(g, *row, *value);
  else if (!value && row->others == OtherValues::ignored)
    leave(g, *row->key ? is_here() : row->text);
  else if (!value && (row->others == OtherValues::copied || is_path))
    copy(g, row->key, row->text);
  else if (*row->key)
    leave_or_refuse(g, row->key, is_here());
  else
    refuse(g, str("has no counterpart: ", value && *value->about ? value->about : row->text));
}

bool ForeignImport::take(const Given& g, const ForeignKey& row, const ForeignValue& value) {
  const std::string key = *value.key ? value.key : row.key;
  const std::string reason = *value.about ? value.about : *row.key ? "is so without being set" : row.text;
  if (*value.ours == 0) return leave(g, reason);
  if (const Field* const field = field_named(fields_, key)) return set(g, key, toml_of(value, *field));
  const bool asks = *flag_in(value.ours);
  for (const std::string& section : split(key, ' ')) asked_[section] |= asks;
  return asks ? map(g, *row.key ? row.key : "[" + key + "]") : leave(g, reason);
}

// Our field of the same spelling: by the whole path, or by the last part alone if only one of our keys ends
// in it.
const Field* ForeignImport::own_field(const Given& g) const {
  if (const Field* const field = field_named(fields_, g.path)) return field;
  const auto is_same = [&](const Field& f) { return name_in_section(f.key) == name_in_section(g.path); };
  const bool is_one = std::count_if(fields_.begin(), fields_.end(), is_same) == 1;
  return is_one ? &*std::find_if(fields_.begin(), fields_.end(), is_same) : nullptr;
}

const Given* ForeignImport::find(const std::string& name) const {
  const auto found =
      std::find_if(given_.begin(), given_.end(), [&](const Given& g) { return g.name() == name; });
  return found == given_.end() ? nullptr : &*found;
}

std::string ForeignImport::value_of(const std::string& key) const {
  const auto found = set_.find(key);
  return found == set_.end() ? "" : found->second.toml;
}

bool ForeignImport::set(const Given& g, const std::string& key, const std::string& toml,
                        const std::string& remark) {
  if (!set_if_missing(key, toml, g.origin) && value_of(key) != toml)
    return leave_or_refuse(g, key, str("sets ", key, ", which is ", value_of(key), " already"));
  return map(g, key + (remark.empty() ? "" : ", " + remark));
}

bool ForeignImport::copy(const Given& g, const std::string& key, const std::string& remark) {
  const Field& ours = field(key);
  const Toml toml = toml_for(ours, g.value, g.items);
  const double n = g.items.empty() ? number_in(g.value).value_or(ours.bounds.least) : ours.bounds.least;
  if (!toml) return leave_or_refuse(g, key, str(demand_of(ours), ", as ", key, " here: ", ours.help));
  if (n < ours.bounds.least || n > ours.bounds.most)
    return refuse(g,
                  str("is outside the bounds of ", key, ", ", ours.bounds.least, " to ", ours.bounds.most));
  return set(g, key, *toml, remark);
}

bool ForeignImport::refuse(const Given& g, const std::string& why) {
  problems_.add(str(g.origin, ": ", printable(g.path), " = ", g.text(), ": ", why,
                    leaves_ ? "; to convert without it, remove it" : ""));
  return true;
}

bool ForeignImport::leave_or_refuse(const Given& g, const std::string& key, const std::string& why) {
  const Field* const ours = field_named(fields_, key);
  const OnResume rule = ours ? ours->on_resume->rule : OnResume::fixed;
  const bool is_trained = (rule != OnResume::noted && rule != OnResume::silent) || key == "model.init_from";
  return leaves_ && !is_trained ? leave(g, why) : refuse(g, why);
}

}  // namespace flatshard
