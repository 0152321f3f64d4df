#pragma once
// The values of a template: Python's, as far as templates use them. Strings are SourcedTexts. Lists and
// dictionaries never change once they exist, as in the sandbox in which Hugging Face transformers renders
// templates; only namespaces change. Each list and dictionary records its nesting depth and its weight. Both
// are limited, so that no template makes a value that cannot be printed, compared or freed.

#include <concepts>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/sourced_text.h"

namespace flatshard {

struct JinjaList;
struct JinjaDict;
struct JinjaNamespace;
struct JinjaFunction;
struct JinjaNode;   // text/jinja/jinja_node.h
struct JinjaScope;  // text/jinja/jinja_runtime.cpp

enum class JinjaKind { undefined, none, boolean, integer, number, text, list, dict, name_space, function };

class JinjaValue {
 public:
  using Items = std::vector<JinjaValue>;
  using Pairs = std::vector<std::pair<JinjaValue, JinjaValue>>;

  JinjaValue() : data_(nullptr) {}                             // None
  JinjaValue(std::same_as<bool> auto value) : data_(value) {}  // accepts no pointers
  JinjaValue(int64_t value) : data_(value) {}
  JinjaValue(std::same_as<double> auto value) : data_(value) {}
  JinjaValue(SourcedText text) : data_(std::make_shared<const SourcedText>(std::move(text))) {}
  JinjaValue(std::shared_ptr<const JinjaList> list) : data_(std::move(list)) {}
  JinjaValue(std::shared_ptr<const JinjaDict> dict) : data_(std::move(dict)) {}
  JinjaValue(JinjaNamespace* names) : data_(names) {}  // owned by the runtime
  JinjaValue(std::shared_ptr<const JinjaFunction> function) : data_(std::move(function)) {}
  // `what` describes the missing value: "'x' is undefined".
  static JinjaValue undefined(std::string what);
  static JinjaValue list(Items items);
  static JinjaValue tuple(Items items);
  static JinjaValue dict(const Pairs& pairs);

  JinjaKind kind() const { return static_cast<JinjaKind>(data_.index()); }
  bool is(JinjaKind kind) const { return this->kind() == kind; }
  // Return the value of this kind, or throw an Error.
  bool boolean() const { return as<bool>(); }
  int64_t integer() const;  // also accepts a boolean
  double number() const;    // also accepts an integer or a boolean
  const SourcedText& text() const { return *as<std::shared_ptr<const SourcedText>>(); }
  const std::string& bytes() const { return text().bytes(); }
  const JinjaList& list() const { return *as<std::shared_ptr<const JinjaList>>(); }
  const JinjaDict& dict() const { return *as<std::shared_ptr<const JinjaDict>>(); }
  JinjaNamespace& name_space() const { return *as<JinjaNamespace*>(); }
  const JinjaFunction& function() const { return *as<std::shared_ptr<const JinjaFunction>>(); }

  const char* type() const;  // Python's name of the type
  bool is_numeric() const;   // boolean, integer or number
  bool truth() const;
  // The values of an iteration: items, keys or code points. Throws an Error for values that cannot be
  // iterated.
  Items items() const;
  int64_t length() const;  // Python's len()
  size_t depth() const;    // 0 unless it contains values
  size_t weight() const;   // approximate size in words
  // Throws an Error if the value is undefined, because undefined values may only be tested.
  void check_defined() const;

 private:
  struct Undefined {
    std::shared_ptr<const std::string> what;
  };
  template <class T>
  const T& as() const {
    if (const T* value = std::get_if<T>(&data_)) return *value;
    fail_kind();
  }
  [[noreturn]] void fail_kind() const;
  explicit JinjaValue(Undefined value) : data_(std::move(value)) {}

  std::variant<Undefined, std::nullptr_t, bool, int64_t, double, std::shared_ptr<const SourcedText>,
               std::shared_ptr<const JinjaList>, std::shared_ptr<const JinjaDict>, JinjaNamespace*,
               std::shared_ptr<const JinjaFunction>>
      data_;
};

// Adds a value to items that will become a list. Throws an Error if there are too many.
void add_item(JinjaValue::Items& items, JinjaValue value);

// The nesting depth of a value, and its weight.
struct JinjaExtent {
  static constexpr size_t kMostDepth = 100, kMostWeight = size_t{1} << 20;

  void add(const JinjaValue& value);
  size_t depth = 1, weight = 1;
};

struct JinjaList {
  // The kinds of Python that are not lists: a view (the items of a dictionary) has no order; a generator
  // (from map, select and other filters) can be iterated over once and is always true.
  enum class Form { list, tuple, range, view, generator };

  JinjaList(Form form, std::vector<JinjaValue> values);

  Form form;
  std::vector<JinjaValue> values;
  JinjaExtent extent;
  mutable bool consumed = false;  // state of a generator
};

struct JinjaDict {
  explicit JinjaDict(const JinjaValue::Pairs& all);  // a repeated key: first position, last value
  const JinjaValue* find(std::string_view key) const;
  const JinjaValue* find(const JinjaValue& key) const;  // throws an Error if the value cannot be a key

  JinjaValue::Pairs pairs;
  JinjaExtent extent;

 private:
  std::unordered_map<std::string, size_t> index_;  // keyed by jinja_key
};

struct JinjaNamespace {
  std::map<std::string, JinjaValue> values;
};

// A macro, a global function, or a method, which can only be used in a call such as x.strip().
struct JinjaFunction {
  std::string name;
  const JinjaNode* macro = nullptr;  // the statement that defines the macro
  std::weak_ptr<JinjaScope> scope;   // scope of the definition, owned by the runtime: owners form no cycle
};

JinjaValue jinja_list(JinjaList::Form form, JinjaValue::Items items);
// Returns equal keys for equal values. Throws an Error for values that Python cannot hash.
std::string jinja_key(const JinjaValue& value);
bool jinja_equal(const JinjaValue& a, const JinjaValue& b);
// Returns a number below, equal to or above 0. Throws an Error for values without an order.
int jinja_order(const JinjaValue& a, const JinjaValue& b);

}  // namespace flatshard
