#pragma once
// Translates the keys of another trainer's file by the table of foreign_keys.h. Every key is mapped to a
// setting of ours, left for a reason, or a problem; nothing is dropped in silence. The readers of files
// derive from the class: foreign_config.cpp and accelerate_config.cpp.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/problems.h"
#include "train/config/fields.h"
#include "train/config/foreign_keys.h"

namespace flatshard {

inline constexpr int64_t kMostForeignBytes = 1 << 20;  // most bytes of a file

// true, yes, on and 1, or false, no, off, none and 0, in any case.
std::optional<bool> flag_in(const std::string& text);
// The value as TOML for this key; nothing if it does not fit. A list has `items`, and no value.
std::optional<std::string> toml_for(const Field& field, const std::string& value,
                                    const std::vector<std::string>& items = {});
// What our key is for their values, in words: "\"none\" for false"; "" if they are the same.
std::string meaning_of(const ForeignKey& row, const std::vector<Field>& known);

// A key of the file under its path, such as "optimizer.lr", with a value or the items of a list.
struct Given {
  std::string path, value;
  std::vector<std::string> items{};
  std::string origin{};  // "axolotl.yml:3"
  int line = 0;

  std::string name() const { return lower(name_in_section(path)); }
  bool is_empty() const { return value.empty() && items.empty(); }
  std::string text() const;  // for messages
};

class ForeignImport {
 public:
  virtual ~ForeignImport() = default;

 protected:
  struct Setting {
    std::string toml, origin{};
  };
  struct Outcome {
    Given given;
    std::string text;  // our key, or the reason
  };

  // `leaves`: whether keys without a translation that no step depends on may be left.
  ForeignImport(std::vector<Given> given, bool leaves) : given_(std::move(given)), leaves_(leaves) {}

  void translate(const Given& g);
  // Handles a key with a rule; returns whether nothing else is to be done. `value` is its row's entry for the
  // value.
  virtual bool by_rule(const Given&, const ForeignKey&, const ForeignValue*) { return false; }

  const Given* find(const std::string& name) const;  // null if the file lacks it
  const Field& field(const std::string& key) const { return *field_named(fields_, key); }
  std::string value_of(const std::string& key) const;  // as TOML; "" if it is not set
  bool set_if_missing(const std::string& key, const std::string& toml, const std::string& origin = "") {
    return set_.emplace(key, Setting{toml, origin}).second;
  }
  // All of these return true, for by_rule().
  bool set(const Given& g, const std::string& key, const std::string& toml, const std::string& remark = "");
  bool copy(const Given& g, const std::string& key, const std::string& remark = "");
  bool map(const Given& g, const std::string& key) { return mapped_.push_back({g, key}), true; }
  bool leave(const Given& g, const std::string& reason) { return left_.push_back({g, reason}), true; }
  bool refuse(const Given& g, const std::string& why);
  bool leave_or_refuse(const Given& g, const std::string& key, const std::string& why);

  Config config_{};
  const std::vector<Field> fields_ = fields(config_);
  std::vector<Given> given_;
  std::map<std::string, Setting> set_{};
  std::map<std::string, bool> asked_{};  // sections of ForeignValue::key
  std::vector<Outcome> mapped_{}, left_{};
  Problems problems_{};

 private:
  const Field* own_field(const Given& g) const;
  bool take(const Given& g, const ForeignKey& row, const ForeignValue& value);

  const bool leaves_;
};

}  // namespace flatshard
