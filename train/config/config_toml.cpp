// Reads a configuration: the TOML file, then the command-line overrides, whose values are TOML too.

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <utility>

#include <toml++/toml.h>

#include "runtime/check.h"
#include "runtime/text.h"
#include "runtime/whole_file.h"
#include "train/config/fields.h"
#include "train/config/toml_limits.h"
#include "train/config/unknown_key.h"

namespace flatshard {
namespace {

// The source of a value, for messages: "tiny.toml:3" or "--optimizer.lr".
struct Source {
  const toml::node& node;
  std::string where, origin;
};

std::string kind_of(const toml::node& node) {
  if (node.is_string()) return "the string " + quoted(*node.value<std::string>());
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

  void operator()(const Choice& member) const {
    std::string choices;
    for (const std::string& name : member.names) choices += (choices.empty() ? "one of " : ", ") + name;
    const std::optional<std::string> value = text(source_.node);
    if (!value) wrong_kind(choices);
    check(member.set(*value), source_.where, ": ", field_.key, " is ", quoted(*value), ", must be ", choices);
  }
  void operator()(std::string* member) const {
    const std::optional<std::string> value = text(source_.node);
    if (!value) wrong_kind("a string");
    *member = *value;
  }
  void operator()(int64_t* member) const {
    const auto value = source_.node.value_exact<int64_t>();
    if (!value) wrong_kind("a whole number");
    check_bounds(*value);
    *member = *value;
  }
  void operator()(double* member) const { *member = number(source_.node); }
  void operator()(bool* member) const {
    const auto value = source_.node.value_exact<bool>();
    if (!value) wrong_kind("true or false");
    *member = *value;
  }
  void operator()(std::vector<std::string>* member) const { set_list(member, "a list of strings"); }
  void operator()(std::vector<double>* member) const {
    const toml::array* array = source_.node.as_array();
    if (!array) wrong_kind("a list of numbers");
    member->clear();
    for (const toml::node& item : *array) member->push_back(number(item));
  }
  void operator()(DataFiles* member) const {
    constexpr const char* kFiles = "a file, a list of files, or a table such as {web = \"a.jsonl\"}";
    if (source_.node.is_array()) return set_list(&member->emplace<std::vector<std::string>>(), kFiles);
    if (const toml::table* table = source_.node.as_table())
      return set_table(&member->emplace<std::vector<NamedFile>>(), *table, kFiles);
    const std::optional<std::string> value = text(source_.node);
    if (!value) wrong_kind(kFiles);
    *member = *value;
  }
  void operator()(std::vector<int64_t>* member) const {
    const toml::array* array = source_.node.as_array();
    if (!array) wrong_kind("a list of whole numbers");
    member->clear();
    for (const toml::node& item : *array) {
      const auto value = item.value_exact<int64_t>();
      if (!value) wrong_kind("a list of whole numbers");
      check_bounds(*value);
      member->push_back(*value);
    }
  }
  void operator()(ModulePatterns* member) const {
    if (source_.node.is_array()) return (*this)(&member->emplace<std::vector<std::string>>());
    const std::optional<std::string> value = text(source_.node);
    if (!value) wrong_kind("a string or a list of strings");
    *member = *value;
  }
  void operator()(DeviceMap* member) const {
    if (source_.node.is_table()) return (*this)(&member->emplace<std::map<std::string, double>>());
    const std::optional<std::string> value = text(source_.node);
    if (!value) wrong_kind("a string or a table of stages");
    if (const std::optional<DeviceMapKind> kind = named<DeviceMapKind>(*value))
      *member = *kind;
    else
      *member = *value;
  }
  void operator()(std::map<std::string, double>* member) const {
    const toml::table* table = source_.node.as_table();
    if (!table) wrong_kind("a table of numbers, such as {q_proj = 16}");
    member->clear();
    for (const auto& [key, node] : *table) (*member)[std::string(key.str())] = number(node);
  }
  void operator()(std::array<double, 2>* member) const {
    const toml::array* array = source_.node.as_array();
    if (!array || array->size() != 2) wrong_kind("a list of two numbers");
    *member = {number(*array->get(0)), number(*array->get(1))};
  }
  template <class T>
  void operator()(std::optional<T>* member) const {
    T value{};
    (*this)(&value);
    *member = value;
  }

 private:
  std::optional<std::string> text(const toml::node& node) const {
    if (field_.spelling == Spelling::or_flag && node.is_boolean())
      return *node.value<bool>() ? "true" : "false";
    if (field_.spelling == Spelling::or_number && node.is_integer()) return str(*node.value<int64_t>());
    if (field_.spelling == Spelling::or_number && node.is_floating_point()) return str(*node.value<double>());
    const auto value = node.value_exact<std::string>();
    // System calls end a path at a zero byte.
    check(!value || value->find('\0') == value->npos, source_.where, ": ", field_.key,
          " contains a zero byte");
    return value;
  }
  void set_list(std::vector<std::string>* member, const char* expected) const {
    const toml::array* array = source_.node.as_array();
    if (!array) wrong_kind(expected);
    member->clear();
    for (const toml::node& item : *array) {
      if (!item.is_string()) wrong_kind(expected);
      member->push_back(*text(item));
    }
  }
  // Stores the files in the order of the config file, which the table does not keep.
  void set_table(std::vector<NamedFile>* member, const toml::table& table, const char* expected) const {
    std::map<std::pair<uint32_t, uint32_t>, NamedFile> in_order;
    for (const auto& [name, node] : table) {
      if (!node.is_string()) wrong_kind(expected);
      const toml::source_position at = name.source().begin;
      in_order[{at.line, at.column}] = {std::string(name.str()), *text(node)};
    }
    member->clear();
    for (const auto& [at, file] : in_order) member->push_back(file);
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
    check(size >= field_.bounds.least, source_.where, ": ", field_.key, " is ", value, ", must be at least ",
          spelled_bound(field_.bounds.least));
    check(size <= field_.bounds.most, source_.where, ": ", field_.key, " is ", value, ", must be at most ",
          spelled_bound(field_.bounds.most));
  }
  // A bound as text; a whole number has all its digits.
  static std::string spelled_bound(double bound) {
    return std::abs(bound) < 1e15 && bound == std::floor(bound) ? str(static_cast<int64_t>(bound))
                                                                : str(bound);
  }
  [[noreturn]] void wrong_kind(const std::string& expected) const {
    fail(str(source_.where, ": ", field_.key, " is ", kind_of(source_.node), ", must be ", expected));
  }

  const Field& field_;
  const Source& source_;
};

constexpr int64_t kMostConfigBytes = 1 << 20;

// A key in TOML's spelling: quoted if it has characters that could break a message or pass for a dot.
std::string spelled(std::string_view key, std::string_view also_plain = "") {
  const bool plain = !key.empty() && std::all_of(key.begin(), key.end(), [&](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' ||
           also_plain.find(static_cast<char>(c)) != also_plain.npos;
  });
  return plain ? std::string(key) : quoted(std::string(key));
}

// The line at which an assertion of the parser fails: the last line of the shortest prefix that triggers it.
int64_t broken_line(const std::string& text) {
  std::vector<size_t> ends;  // ends of the lines
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

toml::table read_file(const std::string& path, const std::string& name) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    const fs::path inside = fs::path(path) / "config.toml";
    fail(str(name, ": is a folder, must be a config file",
             fs::exists(inside, ignored) ? ", such as " + printable(inside.string()) : ""));
  }
  try {
    return parse(read_whole_file(path, kMostConfigBytes), name);
  } catch (const Error& error) {
    if (!path.ends_with(".yaml") && !path.ends_with(".yml") && !path.ends_with(".json")) throw;
    fail(str(error.what(),
             "; a config is a TOML file, such as configs/tiny.toml; train takes a file of accelerate with "
             "--accelerate, beside it"),
         error.where);
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

// Pairs of keys of which a run uses one.
constexpr std::pair<const char*, const char*> kAlternatives[] = {
    {"train.steps", "train.epochs"}, {"schedule.warmup_steps", "schedule.warmup_ratio"}};

class Loader {
 public:
  Loader(LoadedConfig& loaded, Problems& problems)
      : loaded_(loaded), problems_(problems), fields_(fields(loaded.config)) {
    for (const Field& field : fields_) loaded_.origin[field.key] = "default";
  }

  // Sets every value of a table, in the order of the file; `prefix` is the section's name with its dot.
  void set_all(const toml::table& table, const std::string& prefix) {
    std::vector<std::pair<std::string, const toml::node*>> entries;
    for (const auto& [name, node] : table) entries.emplace_back(prefix + spelled(name.str()), &node);
    std::stable_sort(entries.begin(), entries.end(),
                     [](const auto& a, const auto& b) { return line_of(*a.second) < line_of(*b.second); });
    for (const auto& [key, node] : entries) {
      const std::string where = str(loaded_.file, ':', line_of(*node));
      const toml::table* section = find(key) ? nullptr : node->as_table();
      if (!section)
        set(key, {*node, where, where});
      else if (!section->empty() || is_section(key))
        set_all(*section, key + ".");
      else
        problems_.add(str(where, ": ", unknown_section(fields_, key)));
    }
  }

  void set(const std::string& key, const Source& source) {
    const Field* field = find(key);
    if (!field) {
      const UnknownKey unknown = unknown_key(fields_, key);
      problems_.add(source.where + ": " + unknown.message);
      loaded_.refused.insert(unknown.meant);
      return;
    }
    attempt(key, [&] { std::visit(Setter(*field, source), field->member); });
    loaded_.origin[key] = source.origin;
  }

  void preset(const ConfigPreset& value) {
    attempt(value.key, [&] {
      const toml::table table = parse("value = " + value.toml, value.origin);
      set(value.key, {*table.get("value"), value.origin, value.origin});
    });
  }

  // Sets a key from "key=value".
  void override_with(const std::string& text) {
    const size_t equals = text.find('=');
    if (!problems_.check(equals != std::string::npos && equals > 0, "--", spelled(text, ".="),
                         ": its value is missing: write --section.key=value"))
      return;
    const std::string key = spelled(text.substr(0, equals), "."), where = "--" + key;
    attempt(key, [&] {
      const std::string value = text.substr(equals + 1);
      toml::table table = parse_value(value, where);
      if (takes_text(key) && !table.get("value")->is_string() && !is_meant_as_toml(value))
        table.insert_or_assign("value", value);
      set(key, {*table.get("value"), where, "command line"});
    });
  }

  // An alternative on the command line replaces its alternative in the file.
  void choose_alternatives() {
    for (const auto& [a, b] : kAlternatives) {
      replace(a, b);
      replace(b, a);
    }
  }

 private:
  // Whether a key holds a string: on the command line its value is then text even if it looks like a number
  // or a date.
  bool takes_text(const std::string& key) const {
    const Field* field = find(key);
    return field && (std::holds_alternative<std::string*>(field->member) ||
                     std::holds_alternative<Choice>(field->member) ||
                     std::holds_alternative<DataFiles*>(field->member));
  }
  template <class Work>
  void attempt(const std::string& key, Work&& work) {
    if (!problems_.attempt(work)) loaded_.refused.insert(key);
  }
  static int64_t line_of(const toml::node& node) { return node.source().begin.line; }
  // If the command line sets `by`, a `key` that the file sets gets its default back.
  void replace(const std::string& key, const std::string& by) {
    Config defaults;
    const auto values = config_values(loaded_.config), initial = config_values(defaults);
    const std::string origin = loaded_.origin.at(key);
    if (loaded_.origin.at(by) != "command line" || values.at(by) == initial.at(by) ||
        origin == "command line" || values.at(key) == initial.at(key))
      return;
    loaded_.replaced.push_back(
        str("--", by, " = ", values.at(by), " replaces ", key, " = ", values.at(key), " of ", origin));
    preset({key, initial.at(key), "default"});
  }
  const Field* find(const std::string& key) const { return field_named(fields_, key); }
  bool is_section(const std::string& name) const {
    return std::any_of(fields_.begin(), fields_.end(),
                       [&](const Field& f) { return f.key.starts_with(name + "."); });
  }

  LoadedConfig& loaded_;
  Problems& problems_;
  std::vector<Field> fields_;
};

}  // namespace

LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                         Problems& problems, const std::vector<ConfigPreset>& presets) {
  LoadedConfig loaded;
  loaded.file = printable(path);
  Loader loader(loaded, problems);
  for (const ConfigPreset& value : presets) loader.preset(value);
  if (!problems.attempt([&] { loader.set_all(read_file(path, loaded.file), ""); }))
    for (const Field& field : fields(loaded.config)) loaded.refused.insert(field.key);
  for (const std::string& text : overrides) loader.override_with(text);
  loader.choose_alternatives();
  OptimizerConfig& optimizer = loaded.config.optimizer;
  if (loaded.origin.at("optimizer.betas") == "default") optimizer.betas = optimizer.kind.row->betas;
  return loaded;
}

Config overridden(const Config& config, const std::vector<std::string>& overrides) {
  LoadedConfig loaded;
  loaded.config = config;
  Problems problems;
  Loader loader(loaded, problems);
  for (const std::string& text : overrides) loader.override_with(text);
  problems.raise();
  return loaded.config;
}

LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides) {
  Problems problems;
  LoadedConfig loaded = load_config(path, overrides, problems);
  problems.raise();
  return loaded;
}

}  // namespace flatshard
