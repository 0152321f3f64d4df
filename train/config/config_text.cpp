// A config as text: TOML, single values, and the help of every key.

#include <algorithm>
#include <charconv>
#include <iomanip>
#include <set>
#include <sstream>
#include <utility>

#include "runtime/check.h"
#include "train/config/fields.h"

namespace flatshard {
namespace {

// The shortest decimal that reads back as the same double, always recognisable as a float.
std::string number(double value) {
  std::array<char, 32> space;
  const char* const end = std::to_chars(space.data(), space.data() + space.size(), value).ptr;
  const std::string text(space.data(), static_cast<size_t>(end - space.data()));
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

struct Printer {
  std::string operator()(const Choice& v) const { return quoted(v.name()); }
  std::string operator()(const std::string* v) const { return quoted(*v); }
  std::string operator()(const int64_t* v) const { return str(*v); }
  std::string operator()(const double* v) const { return number(*v); }
  std::string operator()(const bool* v) const { return *v ? "true" : "false"; }
  template <class T>
  std::string operator()(const std::vector<T>* v) const {
    std::string out = "[";
    for (const T& item : *v) out += (out.size() > 1 ? ", " : "") + (*this)(&item);
    return out + "]";
  }
  std::string operator()(const ModulePatterns* v) const {
    return std::visit([&](const auto& patterns) { return (*this)(&patterns); }, *v);
  }
  std::string operator()(const DeviceMapKind* v) const { return quoted(name_of(*v)); }
  std::string operator()(const DeviceMap* v) const {
    return std::visit([&](const auto& map) { return (*this)(&map); }, *v);
  }
  std::string operator()(const std::map<std::string, double>* v) const {
    std::string out = "{";
    for (const auto& [key, value] : *v)
      out += str(out.size() > 1 ? ", " : "", quoted(key), " = ", number(value));
    return out + "}";
  }
  std::string operator()(const NamedFile* v) const { return quoted(v->name) + " = " + quoted(v->path); }
  std::string operator()(const std::vector<NamedFile>* v) const {
    std::string out = "{";
    for (const NamedFile& file : *v) out += (out.size() > 1 ? ", " : "") + (*this)(&file);
    return out + "}";
  }
  std::string operator()(const DataFiles* v) const {
    return std::visit([&](const auto& files) { return (*this)(&files); }, *v);
  }
  std::string operator()(const std::array<double, 2>* v) const {
    return str('[', number((*v)[0]), ", ", number((*v)[1]), ']');
  }
  template <class T>
  std::string operator()(const std::optional<T>* v) const {
    return v->has_value() ? (*this)(&v->value()) : "";
  }
};

// The keys that most runs set.
const std::set<std::string>& usual_keys() {
  static const std::set<std::string> keys{"run.dir",
                                          "run.resume",
                                          "model.init_from",
                                          "lora.rank",
                                          "quant.base",
                                          "data.train",
                                          "data.eval",
                                          "data.tokenizer",
                                          "data.seq_len",
                                          "data.packing",
                                          "train.steps",
                                          "train.epochs",
                                          "train.total_batch_size",
                                          "train.batch_size_per_device",
                                          "train.recompute",
                                          "train.eval_every",
                                          "optimizer.lr",
                                          "schedule.warmup_steps",
                                          "precision.compute",
                                          "parallel.strategy",
                                          "checkpoint.save_every"};
  return keys;
}

}  // namespace

std::string value_of(const Field& field) {
  if (field.spelling == Spelling::or_flag) {
    const auto* const choice = std::get_if<Choice>(&field.member);
    const std::string text = choice ? choice->name() : *std::get<std::string*>(field.member);
    if (text == "true" || text == "false") return text;
  }
  return std::visit(Printer{}, field.member);
}

std::string example_of(const Field& field) {
  if (!field.example.value.empty()) return field.example.value;
  const std::string value = value_of(field);
  const std::vector<std::string> names = field.names();
  if (names.empty()) return value == "true" ? "false" : "true";
  const auto other = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return name != value && quoted(name) != value;
  });
  const std::string& name = other == names.end() ? names.front() : *other;
  return name == "true" || name == "false" ? name : quoted(name);
}

const Field* field_named(const std::vector<Field>& known, const std::string& key) {
  const auto found = std::find_if(known.begin(), known.end(), [&](const Field& f) { return f.key == key; });
  return found == known.end() ? nullptr : &*found;
}

std::string section_of(const std::string& key) {
  const size_t dot = key.rfind('.');
  return dot == key.npos ? "" : key.substr(0, dot);
}
std::string name_in_section(const std::string& key) { return key.substr(key.rfind('.') + 1); }

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << '"' << std::hex << std::setfill('0');
  for (const char c : text) {
    if (const int code = static_cast<unsigned char>(c); code < 0x20 || code == 0x7f)
      out << "\\u" << std::setw(4) << code;
    else
      out << (c == '"' || c == '\\' ? "\\" : "") << c;
  }
  out << '"';
  return std::move(out).str();
}

std::string to_toml(Config& config, const std::map<std::string, std::string>* origin) {
  std::ostringstream out;
  std::string section;
  for (const Field& field : fields(config)) {
    const std::string value = value_of(field);
    if (value.empty()) continue;
    if (section_of(field.key) != section) {
      out << (section.empty() ? "" : "\n") << '[' << section_of(field.key) << "]\n";
      section = section_of(field.key);
    }
    std::string line = name_in_section(field.key) + " = " + value;
    if (origin)
      line += std::string(line.size() < 44 ? 44 - line.size() : 1, ' ') + "# " + origin->at(field.key);
    out << line << '\n';
  }
  return std::move(out).str();
}

std::map<std::string, std::string> config_values(Config& config) {
  std::map<std::string, std::string> values;
  for (const Field& field : fields(config))
    if (std::string value = value_of(field); !value.empty()) values[field.key] = std::move(value);
  return values;
}

std::string help_line(const Field& field) {
  const std::string value = value_of(field);
  std::ostringstream out;
  out << "  " << std::left << std::setw(38) << field.key << ' ' << field.help;
  const char* separator = ": ";
  for (const std::string& name : field.names()) out << std::exchange(separator, ", ") << name;
  out << " [" << (value.empty() ? "decided by the family" : value) << "], e.g. " << example_of(field) << '\n';
  return std::move(out).str();
}

std::string fields_help(HelpLevel level) {
  Config defaults;
  std::string text;
  for (const Field& field : fields(defaults))
    if (level == HelpLevel::all || usual_keys().contains(field.key)) text += help_line(field);
  return text;
}

}  // namespace flatshard
