// Reads a configuration: the TOML file, then the command-line overrides, whose values are TOML too.

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <sstream>

#include <toml++/toml.h>

#include "runtime/check.h"
#include "runtime/whole_file.h"
#include "train/config/config.h"
#include "train/config/toml_limits.h"

namespace flatshard {
namespace {

// Where a value was written, for messages: "tiny.toml:3" or "--optimizer.lr".
struct Source {
  const toml::node& node;
  std::string where, origin;
};

const char* kind_of(const toml::node& node) {
  if (node.is_string()) return "a string";
  if (node.is_integer()) return "a whole number";
  if (node.is_floating_point()) return "a number";
  if (node.is_boolean()) return "true or false";
  if (node.is_array()) return "a list";
  if (node.is_table()) return "a section";
  return "a date or time";
}

// Stores a TOML value in a field. A value of the wrong type or out of bounds is an Error.
class Setter {
 public:
  Setter(const Field& field, const Source& source) : field_(field), source_(source) {}

  void operator()(std::string* slot) const {
    const std::optional<std::string> value = text(source_.node);
    if (!value) wrong_kind("a string");
    if (!field_.choices.empty() &&
        std::find(field_.choices.begin(), field_.choices.end(), *value) == field_.choices.end()) {
      std::string choices;
      for (const std::string& choice : field_.choices) choices += (choices.empty() ? "" : ", ") + choice;
      fail(str(source_.where, ": ", field_.key, " is ", quoted(*value), ", must be one of ", choices));
    }
    *slot = *value;
  }
  void operator()(int64_t* slot) const {
    const auto value = source_.node.value_exact<int64_t>();
    if (!value) wrong_kind("a whole number");
    check_bounds(*value);
    *slot = *value;
  }
  void operator()(double* slot) const { *slot = number(source_.node); }
  void operator()(bool* slot) const {
    const auto value = source_.node.value_exact<bool>();
    if (!value) wrong_kind("true or false");
    *slot = *value;
  }
  void operator()(std::vector<std::string>* slot) const {
    const toml::array* array = source_.node.as_array();
    if (!array) wrong_kind("a list of strings");
    slot->clear();
    for (const toml::node& item : *array) {
      if (!item.is_string()) wrong_kind("a list of strings");
      slot->push_back(*text(item));
    }
  }
  void operator()(std::vector<int64_t>* slot) const {
    const toml::array* array = source_.node.as_array();
    if (!array) wrong_kind("a list of whole numbers");
    slot->clear();
    for (const toml::node& item : *array) {
      const auto value = item.value_exact<int64_t>();
      if (!value) wrong_kind("a list of whole numbers");
      check_bounds(*value);
      slot->push_back(*value);
    }
  }
  void operator()(ModulePatterns* slot) const {
    if (source_.node.is_array()) return (*this)(&slot->emplace<std::vector<std::string>>());
    const std::optional<std::string> value = text(source_.node);
    if (!value) wrong_kind("a string or a list of strings");
    *slot = *value;
  }
  void operator()(std::map<std::string, double>* slot) const {
    const toml::table* table = source_.node.as_table();
    if (!table) wrong_kind("a table of numbers, such as {q_proj = 16}");
    slot->clear();
    for (const auto& [key, node] : *table) (*slot)[std::string(key.str())] = number(node);
  }
  void operator()(std::array<double, 2>* slot) const {
    const toml::array* array = source_.node.as_array();
    if (!array || array->size() != 2) wrong_kind("a list of two numbers");
    *slot = {number(*array->get(0)), number(*array->get(1))};
  }
  template <class T>
  void operator()(std::optional<T>* slot) const {
    T value{};
    (*this)(&value);
    *slot = value;
  }

 private:
  std::optional<std::string> text(const toml::node& node) const {
    if (field_.or_flag && node.is_boolean()) return *node.value<bool>() ? "true" : "false";
    if (field_.or_number && node.is_integer()) return str(*node.value<int64_t>());
    if (field_.or_number && node.is_floating_point()) return str(*node.value<double>());
    const auto value = node.value_exact<std::string>();
    // System calls would end a path there.
    check(!value || value->find('\0') == value->npos, source_.where, ": ", field_.key,
          " contains a zero byte");
    return value;
  }
  double number(const toml::node& node) const {
    if (!node.is_floating_point() && !node.is_integer()) wrong_kind("a number");
    const double value = *node.value<double>();
    check(std::isfinite(value), source_.where, ": ", field_.key, " is ", value, ", must be finite");
    check_bounds(value);
    return value;
  }
  template <class T>
  void check_bounds(T value) const {
    const double size = static_cast<double>(value);
    check(size >= field_.least, source_.where, ": ", field_.key, " is ", value, ", must be at least ",
          spelled_bound(field_.least));
    check(size <= field_.most, source_.where, ": ", field_.key, " is ", value, ", must be at most ",
          spelled_bound(field_.most));
  }
  // A whole number with all its digits.
  static std::string spelled_bound(double bound) {
    return std::abs(bound) < 1e15 && bound == std::floor(bound) ? str(static_cast<int64_t>(bound))
                                                                : str(bound);
  }
  [[noreturn]] void wrong_kind(const char* expected) const {
    fail(str(source_.where, ": ", field_.key, " is ", kind_of(source_.node), ", must be ", expected));
  }

  const Field& field_;
  const Source& source_;
};

constexpr int64_t kMostConfigBytes = 1 << 20;

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// The known key most similar to this one. The same name in another section ranks above a similar spelling.
std::string nearest_key(const std::vector<Field>& all, const std::string& key) {
  const auto name = [](const std::string& k) { return k.substr(k.rfind('.') + 1); };
  std::string nearest;
  size_t best = SIZE_MAX;
  for (const Field& field : all) {
    const size_t distance = name(field.key) == name(key) ? 1 : edit_distance(field.key, key);
    if (distance < best) best = distance, nearest = field.key;
  }
  return nearest;
}

// The known section most similar to this one.
std::string nearest_section(const std::vector<Field>& all, const std::string& section) {
  std::string nearest;
  size_t best = SIZE_MAX;
  for (const Field& field : all) {
    const std::string known = field.key.substr(0, field.key.rfind('.'));
    const size_t distance = edit_distance(known, section);
    if (distance < best) best = distance, nearest = known;
  }
  return nearest;
}

// A key in TOML's spelling: quoted if it has characters that could break a message or pass for a dot.
std::string spelled(std::string_view key, std::string_view also_plain = "") {
  const bool plain = !key.empty() && std::all_of(key.begin(), key.end(), [&](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' ||
           also_plain.find(static_cast<char>(c)) != also_plain.npos;
  });
  return plain ? std::string(key) : quoted(std::string(key));
}

// Replaces control characters, which could break a line or a terminal.
std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

class Loader {
 public:
  explicit Loader(LoadedConfig& loaded) : loaded_(loaded), fields_(fields(loaded.config)) {
    for (const Field& field : fields_) loaded_.origin[field.key] = "default";
  }

  // Sets every value of a table; `prefix` is the section's name with its dot.
  void set_all(const toml::table& table, const std::string& prefix, const std::string& file) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + spelled(name.str());
      const std::string where = str(file, ':', node.source().begin.line);
      const toml::table* section = find(key) ? nullptr : node.as_table();
      if (!section)
        set(key, {node, where, where});
      else if (!section->empty() || is_section(key))
        set_all(*section, key + ".", file);
      else
        fail(str(where, ": unknown section [", key, "]; the nearest known one is [",
                 nearest_section(fields_, key), "]"));
    }
  }

  void set(const std::string& key, const Source& source) {
    const Field* field = find(key);
    if (!field)
      fail(
          str(source.where, ": unknown key ", key, "; the nearest known one is ", nearest_key(fields_, key)));
    std::visit(Setter(*field, source), field->slot);
    loaded_.origin[key] = source.origin;
  }

  // Whether a key holds a string: on the command line its value is then text even if it looks like a number
  // or a date.
  bool takes_text(const std::string& key) const {
    const Field* field = find(key);
    return field && std::holds_alternative<std::string*>(field->slot);
  }

 private:
  const Field* find(const std::string& key) const {
    const auto found =
        std::find_if(fields_.begin(), fields_.end(), [&](const Field& f) { return f.key == key; });
    return found == fields_.end() ? nullptr : &*found;
  }
  bool is_section(const std::string& name) const {
    return std::any_of(fields_.begin(), fields_.end(),
                       [&](const Field& f) { return f.key.starts_with(name + "."); });
  }

  LoadedConfig& loaded_;
  std::vector<Field> fields_;
};

// The line at which an assertion of the parser fails: the last line of the shortest prefix that triggers it.
int64_t broken_line(const std::string& text) {
  std::vector<size_t> ends;  // of the lines
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '\n') ends.push_back(i + 1);
  const auto holds = [&](size_t end) {
    try {
      static_cast<void>(toml::parse(std::string_view(text).substr(0, end)));
    } catch (const toml::parse_error&) {
    } catch (const BrokenAssertion&) {
      return false;
    }
    return true;
  };
  return std::partition_point(ends.begin(), ends.end(), holds) - ends.begin() + 1;
}

// `name` is the source that errors cite.
toml::table parse(const std::string& text, const std::string& name) {
  check_toml_limits(text, name);
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    fail(str(name, ':', error.source().begin.line, ": ", printable(std::string(error.description()))));
  } catch (const BrokenAssertion&) {
    fail(str(name, ':', broken_line(text), ": is not valid TOML"));
  }
}

// Whether a value is meant as TOML: it begins like a string, list or table, or ends like a string. Otherwise
// a forgotten quote would become part of a name.
bool is_meant_as_toml(const std::string& value) {
  return !value.empty() &&
         (std::string("\"'[{").find(value.front()) != std::string::npos || value.back() == '"');
}

// The table {value = ...} of an override. Text that is not TOML is taken as a bare string.
toml::table parse_value(const std::string& value, const std::string& where) {
  try {
    toml::table table = parse("value = " + value, where);
    if (table.size() == 1 && table.contains("value")) return table;
  } catch (const Error& error) {
    if (is_meant_as_toml(value))
      fail(str(where, " is ", printable(value), ", which is not valid TOML: ", error.what()));
  }
  try {
    return parse("value = " + quoted(value), where);
  } catch (const Error&) {
    fail(where + ": the value is not valid UTF-8");
  }
}

void apply_override(Loader& loader, const std::string& text) {
  const size_t equals = text.find('=');
  check(equals != std::string::npos && equals > 0, "--", spelled(text, ".="),
        ": write an override as --section.key=value");
  const std::string key = spelled(text.substr(0, equals), "."), where = "--" + key;
  const std::string value = text.substr(equals + 1);
  toml::table table = parse_value(value, where);
  const toml::node& node = *table.get("value");
  if (loader.takes_text(key) && !node.is_string() && !is_meant_as_toml(value))
    table.insert_or_assign("value", value);
  loader.set(key, {*table.get("value"), where, "command line"});
}

}  // namespace

void check_values(Config& config, const std::string& where) {
  LoadedConfig again;
  Loader loader(again);
  for (const auto& [key, value] : config_values(config)) {
    const toml::table table = parse("value = " + value, where);
    loader.set(key, {*table.get("value"), where, where});
  }
}

LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides) {
  LoadedConfig loaded;
  Loader loader(loaded);
  const std::string name = printable(path);
  loader.set_all(parse(read_whole_file(path, kMostConfigBytes), name), "", name);
  for (const std::string& text : overrides) apply_override(loader, text);
  return loaded;
}

}  // namespace flatshard
