#include "train/config/yaml_mapping.h"

#include <algorithm>

#include "runtime/check.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

constexpr int kDeepest = 8;

struct Line {
  int number;
  size_t indent;
  std::string text;  // without indentation, comment and trailing spaces
};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::string trimmed(const std::string& text) {
  const auto begin = std::find_if_not(text.begin(), text.end(), is_space);
  const auto end = std::find_if_not(text.rbegin(), std::make_reverse_iterator(begin), is_space).base();
  return {begin, end};
}

class Parser {
 public:
  Parser(const std::string& text, const std::string& name) : name_(name) { split(text); }

  std::vector<YamlEntry> parse() {
    std::vector<YamlEntry> entries;
    if (!lines_.empty()) {
      check(lines_[0].indent == 0, where(lines_[0]), ": must not be indented");
      entries = mapping(0, 1);
    }
    if (at_ < lines_.size()) fail_at(lines_[at_], "is indented differently from the lines above it");
    return entries;
  }

 private:
  std::string where(const Line& line) const { return str(name_, ':', line.number); }
  [[noreturn]] void fail_at(const Line& line, const std::string& what) const {
    fail(str(where(line), ": \"", printable(line.text), "\" ", what));
  }

  void split(const std::string& text) {
    int number = 0;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      add_line(++number, text.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  void add_line(int number, const std::string& raw) {
    const size_t indent = raw.find_first_not_of(' ');
    const Line line{number, indent == raw.npos ? 0 : indent, trimmed(without_comment(raw))};
    if (line.text.empty() || line.text == "---") return;
    check(raw[indent] != '\t', where(line), ": is indented with a tab; use spaces");
    lines_.push_back(line);
  }

  // A # begins a comment at the start of a line or after a space, outside quotes.
  static std::string without_comment(const std::string& raw) {
    char quote = 0;
    for (size_t i = 0; i < raw.size(); ++i) {
      const bool begins = i == 0 || is_space(raw[i - 1]) || raw[i - 1] == '[' || raw[i - 1] == ',';
      if (quote != 0)
        quote = raw[i] == quote && (quote == '\'' || raw[i - 1] != '\\') ? 0 : quote;
      else if ((raw[i] == '"' || raw[i] == '\'') && begins)
        quote = raw[i];
      else if (raw[i] == '#' && begins)
        return raw.substr(0, i);
    }
    return raw;
  }

  std::vector<YamlEntry> mapping(size_t indent, int depth) {
    std::vector<YamlEntry> entries;
    check(depth <= kDeepest, where(lines_[at_]), ": is nested more than ", kDeepest, " levels deep");
    while (at_ < lines_.size() && lines_[at_].indent == indent && !is_item(lines_[at_])) {
      YamlEntry entry = member(depth);
      for (const YamlEntry& other : entries)
        check(other.key != entry.key, name_, ':', entry.line, ": ", printable(entry.key),
              " is already set in line ", other.line);
      entries.push_back(std::move(entry));
    }
    return entries;
  }

  YamlEntry member(int depth) {
    const Line& line = lines_[at_++];
    const size_t colon = line.text.find(':');
    if (colon == line.text.npos || colon == 0 ||
        (colon + 1 < line.text.size() && !is_space(line.text[colon + 1])))
      fail_at(line, "must have the form key: value");
    YamlEntry entry{.key = trimmed(line.text.substr(0, colon)), .line = line.number};
    const std::string rest = trimmed(line.text.substr(colon + 1));
    if (!rest.empty())
      set_value(entry, rest, line);
    else if (at_ < lines_.size() && is_item(lines_[at_]) && lines_[at_].indent >= line.indent)
      read_items(entry);
    else if (at_ < lines_.size() && lines_[at_].indent > line.indent) {
      entry.kind = YamlEntry::Kind::mapping;
      entry.members = mapping(lines_[at_].indent, depth + 1);
    }
    return entry;
  }

  static bool is_item(const Line& line) { return line.text == "-" || line.text.starts_with("- "); }

  void read_items(YamlEntry& entry) {
    entry.kind = YamlEntry::Kind::list;
    const size_t indent = lines_[at_].indent;
    for (; at_ < lines_.size() && is_item(lines_[at_]) && lines_[at_].indent == indent; ++at_)
      entry.items.push_back(scalar(trimmed(lines_[at_].text.substr(1)), lines_[at_]).first);
  }

  void set_value(YamlEntry& entry, const std::string& text, const Line& line) {
    if (text == "{}") {
      entry.kind = YamlEntry::Kind::mapping;
    } else if (text.front() == '[') {
      if (text.back() != ']') fail_at(line, "has a list that does not end in this line");
      entry.kind = YamlEntry::Kind::list;
      const std::string inside = text.substr(1, text.size() - 2);
      for (size_t begin = 0; !trimmed(inside).empty() && begin <= inside.size();) {
        const size_t end = std::min(inside.find(',', begin), inside.size());
        entry.items.push_back(scalar(trimmed(inside.substr(begin, end - begin)), line).first);
        begin = end + 1;
      }
    } else {
      const auto [value, quoted] = scalar(text, line);
      entry.value = value;
      entry.quoted = quoted;
    }
  }

  // The value, and whether it is quoted.
  std::pair<std::string, bool> scalar(const std::string& text, const Line& line) const {
    const char first = text.empty() ? ' ' : text.front();
    if (first == '"' || first == '\'') {
      if (text.size() < 2 || text.back() != first)
        fail_at(line, "has a quote that does not end in this line");
      const std::string inside = text.substr(1, text.size() - 2);
      if (inside.find(first) != inside.npos || inside.find('\\') != inside.npos)
        fail_at(line, "has quotes or escapes inside quotes, which are not supported");
      return {inside, true};
    }
    if (std::string("&*!|>{%@`[]").find(first) != std::string::npos)
      fail_at(line, "uses a feature of YAML that is not supported here; write plain values");
    if (text.find(": ") != text.npos) fail_at(line, "has two colons; put the value in quotes");
    return {text == "~" || text == "null" ? "" : text, false};
  }

  std::string name_;
  std::vector<Line> lines_;
  size_t at_ = 0;
};

}  // namespace

std::vector<YamlEntry> parse_yaml_mapping(const std::string& text, const std::string& name) {
  return Parser(text, name).parse();
}

}  // namespace flatshard
