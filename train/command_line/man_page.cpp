#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>
#include <utility>

#include "runtime/check.h"
#include "runtime/version.h"
#include "train/command_line/command.h"

namespace flatshard {
namespace {

constexpr size_t kLineWidth = 78;

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\e";
    else
      out += c == '-' ? "\\-" : std::string(1, c);
  }
  return out;
}

// A line of input, which must not look like a request of troff.
std::string protected_line(const std::string& line) {
  return (line.starts_with('.') || line.starts_with('\'') ? "\\&" : "") + line;
}

class Page {
 public:
  explicit Page(std::set<std::string> keys) : keys_(std::move(keys)) {}

  // Adds words, which troff fills as a paragraph.
  void words(const std::string& text) {
    std::istringstream in(escaped(text));
    std::string line;
    for (std::string word; in >> word;) {
      if (!line.empty() && line.size() + 1 + word.size() > kLineWidth) flush(line);
      line += (line.empty() ? "" : " ") + word;
      if (word.ends_with('.')) flush(line);  // troff sets the space after a sentence
    }
    flush(line);
  }

  // Adds text as in --help: paragraphs, indented lines that keep their form, and lines about config keys.
  void text(const std::string& help) {
    std::istringstream in(help);
    std::string paragraph;
    bool literal = false;
    const auto end_paragraph = [&] {
      if (literal) out_ << ".EE\n";
      literal = false;
      words(std::exchange(paragraph, {}));
    };
    for (std::string line; std::getline(in, line);) {
      std::string first;
      std::istringstream(line) >> first;
      if (first.empty()) {
        end_paragraph();
        gap_ = true;
      } else if (keys_.contains(first)) {
        end_paragraph();
        entry("--" + first, line.substr(line.find(first) + first.size()));
      } else if (line.starts_with(' ')) {
        if (!literal) end_paragraph(), out_ << ".PP\n.EX\n";
        literal = true;
        out_ << protected_line(escaped(line)) << '\n';
      } else {
        if (literal) end_paragraph(), gap_ = true;
        if (std::exchange(gap_, false)) out_ << ".PP\n";
        paragraph += line + ' ';
      }
    }
    end_paragraph();
    gap_ = false;
  }

  void section(const std::string& title) { out_ << ".SH " << title << '\n'; }
  void subsection(const std::string& title) { out_ << ".SS " << title << '\n'; }
  void entry(const std::string& term, const std::string& about) {
    out_ << ".TP\n.B " << escaped(term) << '\n';
    words(about);
  }
  void line(const std::string& troff) { out_ << troff << '\n'; }

  std::string str() const { return out_.str(); }

 private:
  void flush(std::string& line) {
    if (!line.empty()) out_ << protected_line(line) << '\n';
    line.clear();
  }

  std::ostringstream out_;
  std::set<std::string> keys_;
  bool gap_ = false;  // whether the next text begins a new paragraph
};

void synopsis(Page& page, const std::string& command, const Command& app) {
  std::string line = ".B " + escaped(command) + "\n[\\fIOPTIONS\\fR]";
  for (const Option& option : app.options) {
    if (!option.is_positional()) continue;
    const std::string name = "\\fI" + escaped(option.names) + "\\fR";
    line += option.details.required ? " " + name : " [" + name + "]";
  }
  page.line(line + (app.commands.empty() ? "" : " \\fICOMMAND\\fR ..."));
}

void options(Page& page, const std::vector<OptionText>& texts) {
  for (const auto& [option, about] : texts) page.entry(option, about);
}

// The first sentence of a description as the line under NAME: "trains a transformer".
std::string summary(const std::string& description) {
  std::string text = description.substr(0, description.find(". "));
  text = text.substr(0, text.find("\n\n"));
  if (text.ends_with('.')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  if (!text.empty()) text[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(text[0])));
  return text;
}

void files(Page& page, const std::string& name, const std::string& command) {
  page.section("FILES");
  page.entry(
      "PREFIX/lib/flatshard/bin/" + name,
      str("the program under its own name; with this folder on PATH, ", name, " works like ", command));
  page.entry("PREFIX/share/flatshard/configs", "example configs");
}

void see_also(Page& page, const std::string& name) {
  page.section("SEE ALSO");
  std::string line;
  for (const std::string& program : installed_programs())
    if (program != name) line += (line.empty() ? "" : ",\n") + str(".BR flatshard\\-", program, " (1)");
  page.line(line);
}

}  // namespace

std::string man_page(const Command& program) {
  std::set<std::string> keys;
  for (const Key& key : program.keys) keys.insert(key.name);
  Page page(std::move(keys));
  const std::string name = "flatshard-" + program.name;  // name of the installed command
  std::string title = name;
  std::transform(title.begin(), title.end(), title.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  page.line(str(".TH ", escaped(title), " 1 \"", revision_date(), "\" \"Flatshard ", version_number(),
                "\" \"Flatshard\""));
  page.section("NAME");
  page.line(escaped(name) + " \\- " + escaped(summary(program.about)));
  page.section("SYNOPSIS");
  synopsis(page, name, program);
  page.section("DESCRIPTION");
  page.text(program.about);
  page.section("OPTIONS");
  options(page, option_texts(program, nullptr));
  if (!program.commands.empty()) page.section("COMMANDS");
  for (const Command& command : program.commands) {
    page.subsection(command.name);
    synopsis(page, name + " " + command.name, command);
    page.line(".PP");
    page.text(command.about);
    options(page, option_texts(program, &command));
  }
  const std::string& footer = program.full_footer.empty() ? program.footer : program.full_footer;
  if (!footer.empty()) {
    page.section("NOTES");
    page.text(footer);
  }
  files(page, program.name, name);
  see_also(page, program.name);
  return page.str();
}

}  // namespace flatshard
