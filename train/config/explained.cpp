// The answer to `train --explain KEY`: the line of fields(), what other trainers call the key, and its rows
// in the pages of configs/.

#include <iomanip>
#include <sstream>
#include <string_view>

#include "runtime/check.h"
#include "runtime/text.h"
#include "train/config/config_pages.h"
#include "train/config/fields.h"
#include "train/config/foreign_keys.h"
#include "train/config/unknown_key.h"

namespace flatshard {
namespace {

const char* text_of(OnResume rule) {
  switch (rule) {
    case OnResume::fixed:
      return "must not change when a run resumes";
    case OnResume::changes:
      return "may change when a run resumes; checkpoints record it";
    case OnResume::moves_rate:
      return "may change when a run resumes; the learning rate may then jump";
    case OnResume::reorders:
      return "may change when a run resumes; the epoch of the data then begins again";
    case OnResume::content:
      return "may name another file when a run resumes";
    case OnResume::noted:
      return "may change when a run resumes; the header notes it";
    case OnResume::silent:
      return "may change when a run resumes";
  }
  fail("a rule without a text");
}

// "from 0 to 1"; "" without bounds.
std::string text_of(const Bounds& bounds) {
  constexpr double kNone = 1e38;  // bounds beyond it are those of the type
  const bool below = bounds.least > -kNone, above = bounds.most < kNone;
  if (below && above) return str("from ", bounds.least, " to ", bounds.most);
  if (below) return str("at least ", bounds.least);
  return above ? str("at most ", bounds.most) : "";
}

// The spellings of other trainers, with commas between them.
std::string spelled_elsewhere(const std::string& key) {
  std::string all;
  for (const ForeignKey& row : foreign_keys()) {
    if (row.key != key) continue;
    for (const std::string& spelling : split(row.spellings, ' ')) all += (all.empty() ? "" : ", ") + spelling;
  }
  return all;
}

// Markdown as plain text: of links only their words.
std::string plain(std::string_view markdown) {
  std::string text;
  for (size_t i = 0; i < markdown.size(); ++i) {
    const size_t middle = markdown[i] == '[' ? markdown.find("](", i) : markdown.npos,
                 end = middle == markdown.npos ? middle : markdown.find(')', middle);
    if (end == markdown.npos || markdown.substr(i, middle - i).find(']') != markdown.npos) {
      text += markdown[i];
      continue;
    }
    text += markdown.substr(i + 1, middle - i - 1);
    i = end;
  }
  return text;
}

// The last cells of the rows that have the key in their first, "| `train.steps` | 0 | ... |", in tables of
// keys.
std::vector<std::string> rows_of(const std::string& key, const char* page) {
  std::vector<std::string> rows;
  std::istringstream lines(page);
  bool in_table = false;
  for (std::string line; std::getline(lines, line);) {
    in_table = line.starts_with("| key ") || (in_table && line.starts_with('|'));
    const size_t first = in_table ? line.find(" | ") : line.npos;
    if (first == line.npos || line.substr(0, first).find('`' + key + '`') == line.npos) continue;
    const size_t end = line.rfind(" |"), begin = line.rfind(" | ", end - 1) + 3;
    if (begin < end) rows.push_back(plain(std::string_view(line).substr(begin, end - begin)));
  }
  return rows;
}

// Lines of a name and a text.
class Lines {
 public:
  void line(const std::string& name, const std::string& text) {
    if (!text.empty()) out_ << "  " << std::left << std::setw(kNameWidth) << name << ' ' << text << '\n';
  }
  std::ostringstream& out() { return out_; }

 private:
  static constexpr int kNameWidth = 12;
  std::ostringstream out_;
};

std::string explained_key(const Field& field) {
  Lines lines;
  lines.out() << field.key << '\n';
  lines.line("meaning", field.help);
  std::string names;
  for (const std::string& name : field.names()) names += (names.empty() ? "" : ", ") + name;
  lines.line("values", names);
  lines.line("bounds", text_of(field.bounds));
  const std::string value = value_of(field);
  lines.line("default", value.empty() ? "decided by the family" : value);
  lines.line("in a config",
             str('[', section_of(field.key), "]  ", name_in_section(field.key), " = ", example_of(field)));
  lines.line("resumed", text_of(field.on_resume->rule));
  lines.line("elsewhere", spelled_elsewhere(field.key));
  for (const ConfigPage& page : config_pages())
    for (const std::string& row : rows_of(field.key, page.text)) lines.line(page.name, row);
  return std::move(lines.out()).str();
}

}  // namespace

std::string explained(const std::string& name) {
  Config defaults;
  const std::vector<Field> known = fields(defaults);
  if (const Field* const field = field_named(known, name)) return explained_key(*field);
  std::string section;
  for (const Field& field : known)
    if (section_of(field.key) == name) section += help_line(field);
  check(!section.empty(), unknown_key(known, name).message);
  return section;
}

}  // namespace flatshard
