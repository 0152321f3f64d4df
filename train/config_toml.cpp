// Reads a configuration: the TOML file, then the overrides of the command line, each spelled as TOML.

#include <algorithm>
#include <cmath>

#include <toml++/toml.h>

#include "runtime/check.h"
#include "train/config.h"

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

// Puts a TOML value into a field's slot; the wrong kind and a value out of bounds are errors.
class Setter {
 public:
  Setter(const Field& field, const Source& source) : field_(field), source_(source) {}

  void operator()(std::string* slot) const {
    const auto value = source_.node.value_exact<std::string>();
    if (!value) wrong_kind("a string");
    if (!field_.choices.empty() &&
        std::find(field_.choices.begin(), field_.choices.end(), *value) == field_.choices.end()) {
      std::string choices;
      for (const std::string& choice : field_.choices) choices += (choices.empty() ? "" : ", ") + choice;
      fail(str(source_.where, ": ", field_.key, " is \"", *value, "\", must be one of ", choices));
    }
    *slot = *value;
  }
  void operator()(int64_t* slot) const {
    const auto value = source_.node.value_exact<int64_t>();
    if (!value) wrong_kind("a whole number");
    check_bounds(static_cast<double>(*value));
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
      slot->push_back(*item.value_exact<std::string>());
    }
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
  double number(const toml::node& node) const {
    if (!node.is_floating_point() && !node.is_integer()) wrong_kind("a number");
    const double value = *node.value<double>();
    check(std::isfinite(value), source_.where, ": ", field_.key, " is ", value, ", must be finite");
    check_bounds(value);
    return value;
  }
  void check_bounds(double value) const {
    check(value >= field_.least, source_.where, ": ", field_.key, " is ", value, ", must be at least ",
          field_.least);
    check(value <= field_.most, source_.where, ": ", field_.key, " is ", value, ", must be at most ",
          field_.most);
  }
  [[noreturn]] void wrong_kind(const char* expected) const {
    fail(str(source_.where, ": ", field_.key, " is ", kind_of(source_.node), ", must be ", expected));
  }

  const Field& field_;
  const Source& source_;
};

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

// The known key that looks most like this one: the same name in another section beats a similar spelling.
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

class Loader {
 public:
  explicit Loader(LoadedConfig& loaded) : loaded_(loaded), fields_(fields(loaded.config)) {
    for (const Field& field : fields_) loaded_.origin[field.key] = "default";
  }

  // Sets every value of a table; `prefix` is the section's name with its dot.
  void set_all(const toml::table& table, const std::string& prefix, const std::string& file) {
    for (const auto& [name, node] : table) {
      const std::string key = prefix + std::string(name.str());
      const Field* field = find(key);
      if (!field && node.is_table()) {
        set_all(*node.as_table(), key + ".", file);
        continue;
      }
      const std::string where = str(file, ':', node.source().begin.line);
      set(key, {node, where, where});
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

 private:
  const Field* find(const std::string& key) const {
    const auto found =
        std::find_if(fields_.begin(), fields_.end(), [&](const Field& f) { return f.key == key; });
    return found == fields_.end() ? nullptr : &*found;
  }

  LoadedConfig& loaded_;
  std::vector<Field> fields_;
};

toml::table parse_file(const std::string& path) {
  try {
    return toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    fail(str(path, ':', error.source().begin.line, ": ", error.description()));
  }
}

void apply_override(Loader& loader, const std::string& text) {
  const size_t equals = text.find('=');
  check(equals != std::string::npos && equals > 0, "--", text,
        ": an override is written --section.key=value");
  const std::string key = text.substr(0, equals), value = text.substr(equals + 1), where = "--" + key;
  toml::table table;
  try {
    table = toml::parse("value = " + value);
  } catch (const toml::parse_error&) {  // a bare word
    table.clear();
  }
  if (table.size() != 1 || !table.contains("value")) {
    table.clear();
    table.insert("value", value);
  }
  loader.set(key, {*table.get("value"), where, "command line"});
}

}  // namespace

LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides) {
  LoadedConfig loaded;
  Loader loader(loaded);
  loader.set_all(parse_file(path), "", path);
  for (const std::string& text : overrides) apply_override(loader, text);
  return loaded;
}

}  // namespace flatshard
