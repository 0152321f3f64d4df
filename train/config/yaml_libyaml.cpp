#include <algorithm>
#include <memory>
#include <yaml.h>

#include "runtime/check.h"
#include "runtime/text.h"
#include "train/config/yaml_mapping.h"

namespace flatshard {
namespace {

constexpr int kDeepest = 8;

// The events of a parser, one at a time.
class Events {
 public:
  Events(const std::string& text, const std::string& name, YamlLists lists) : name_(name), lists_(lists) {
    check(yaml_parser_initialize(&parser_) != 0, name, ": libyaml cannot start");
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
    read();
  }
  ~Events() {
    if (has_event_) yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  yaml_event_type_t type() const { return event_.type; }
  int line() const { return static_cast<int>(event_.start_mark.line) + 1; }
  std::string where() const { return str(name_, ':', line()); }
  // The text of a scalar.
  std::string text() const {
    const auto& scalar = event_.data.scalar;
    const std::string value(reinterpret_cast<const char*>(scalar.value), scalar.length);
    check(value.find('\0') == value.npos, where(), ": a value contains a zero byte");
    return value;
  }
  bool allows_records() const { return lists_ == YamlLists::of_mappings_too; }
  bool quoted() const { return event_.data.scalar.style != YAML_PLAIN_SCALAR_STYLE; }

  void next() {
    yaml_event_delete(&event_);
    has_event_ = false;
    read();
  }

 private:
  void read() {
    if (yaml_parser_parse(&parser_, &event_) == 0)
      fail(str(name_, ':', std::max(parser_.problem_mark.line, parser_.context_mark.line) + 1,
               ": is not valid YAML: ", parser_.problem ? printable(parser_.problem) : "it cannot be read",
               parser_.context ? " " + printable(parser_.context) : ""));
    has_event_ = true;
    const bool refers = type() == YAML_ALIAS_EVENT || anchor() != nullptr;
    check(!refers, where(), ": anchors (&) and aliases (*) are not supported: write the value itself");
    check(tag() == nullptr, where(), ": tags (!) are not supported: write a plain value");
  }
  const yaml_char_t* anchor() const {
    return type() == YAML_SCALAR_EVENT           ? event_.data.scalar.anchor
           : type() == YAML_SEQUENCE_START_EVENT ? event_.data.sequence_start.anchor
           : type() == YAML_MAPPING_START_EVENT  ? event_.data.mapping_start.anchor
                                                 : nullptr;
  }
  const yaml_char_t* tag() const {
    return type() == YAML_SCALAR_EVENT           ? event_.data.scalar.tag
           : type() == YAML_SEQUENCE_START_EVENT ? event_.data.sequence_start.tag
           : type() == YAML_MAPPING_START_EVENT  ? event_.data.mapping_start.tag
                                                 : nullptr;
  }

  std::string name_;
  YamlLists lists_;
  yaml_parser_t parser_{};
  yaml_event_t event_{};
  bool has_event_ = false;
};

// "" for null, as YAML spells it.
std::string value_of(const Events& events) {
  const std::string text = events.text();
  const bool is_null = text == "~" || text == "null" || text == "Null" || text == "NULL";
  return is_null && !events.quoted() ? "" : text;
}

std::vector<YamlEntry> read_mapping(Events& events, const std::string& name, int depth);

void read_items(Events& events, YamlEntry& entry, const std::string& name, int depth) {
  entry.kind = YamlEntry::Kind::list;
  for (events.next(); events.type() != YAML_SEQUENCE_END_EVENT; events.next()) {
    if (events.allows_records() && events.type() == YAML_MAPPING_START_EVENT) {
      entry.records.push_back(read_mapping(events, name, depth + 1));
      continue;
    }
    check(events.type() == YAML_SCALAR_EVENT, events.where(), ": an element of the list ",
          printable(entry.key), " must be a single value");
    entry.items.push_back(value_of(events));
  }
}

// Reads the value at the current event; the event after it is not read.
void read_value(Events& events, YamlEntry& entry, const std::string& name, int depth) {
  if (events.type() == YAML_SCALAR_EVENT) {
    entry.value = value_of(events);
  } else if (events.type() == YAML_SEQUENCE_START_EVENT) {
    read_items(events, entry, name, depth);
  } else {
    entry.kind = YamlEntry::Kind::mapping;
    entry.members = read_mapping(events, name, depth + 1);
  }
}

std::vector<YamlEntry> read_mapping(Events& events, const std::string& name, int depth) {
  check(depth <= kDeepest, events.where(), ": is nested more than ", kDeepest, " levels deep");
  std::vector<YamlEntry> entries;
  for (events.next(); events.type() != YAML_MAPPING_END_EVENT; events.next()) {
    check(events.type() == YAML_SCALAR_EVENT, events.where(), ": a key must be a single word");
    YamlEntry entry{.key = events.text(), .line = events.line()};
    for (const YamlEntry& other : entries)
      check(other.key != entry.key, events.where(), ": ", printable(entry.key), " is already set in line ",
            other.line);
    events.next();
    read_value(events, entry, name, depth);
    entries.push_back(std::move(entry));
  }
  return entries;
}

}  // namespace

std::vector<YamlEntry> parse_yaml_mapping(const std::string& text, const std::string& name, YamlLists lists) {
  Events events(text, name, lists);
  events.next();  // begin of the stream
  if (events.type() == YAML_STREAM_END_EVENT) return {};
  events.next();  // begin of the document
  std::vector<YamlEntry> entries;
  if (events.type() == YAML_MAPPING_START_EVENT) {
    entries = read_mapping(events, name, 1);
  } else {
    const bool is_empty = events.type() == YAML_SCALAR_EVENT && value_of(events).empty();
    check(is_empty, events.where(), ": is a ", events.type() == YAML_SCALAR_EVENT ? "single value" : "list",
          ", must have the form key: value");
  }
  events.next();
  events.next();  // end of the document
  check(events.type() == YAML_STREAM_END_EVENT, events.where(),
        ": begins a second document, must be one: split the file at this line");
  return entries;
}

}  // namespace flatshard
