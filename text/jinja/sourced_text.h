#pragma once
// A string that records the source of each of its bytes: the template itself, or data passed to it. All
// operations on strings keep the record, so a rendering shows which of its bytes are data, however the
// template trimmed, split and joined them. Texts are valid UTF-8. Positions count bytes, and the functions
// below convert them to the code points that Jinja counts.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/utf8.h"

namespace flatshard {

constexpr int32_t kFromTemplate = -1;  // sources of data are all other numbers

struct TextRun {
  size_t end;      // the run begins where the one before it ends
  int32_t source;  // kFromTemplate, or the source of the data
  bool generated;  // inside {% generation %}
};

class SourcedText {
 public:
  static constexpr size_t kMostBytes = size_t{1} << 24;

  SourcedText() = default;
  explicit SourcedText(std::string_view bytes, int32_t source = kFromTemplate) { append(bytes, source); }

  const std::string& bytes() const { return bytes_; }
  const std::vector<TextRun>& runs() const { return runs_; }  // adjacent runs differ
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  // Throws an Error if the text would have more than kMostBytes.
  void append(std::string_view bytes, int32_t source = kFromTemplate);
  void append(const SourcedText& text) { append(text, 0, text.size()); }
  void append(const SourcedText& text, size_t begin, size_t end);
  void mark_generated();

  // Set by the filter `safe`: text appended with + is HTML-escaped, as in Jinja2, even without autoescaping.
  bool is_markup() const { return is_markup_; }
  void mark_markup() { is_markup_ = true; }

  SourcedText slice(size_t begin, size_t end) const;
  // Calls to(code point, string), which appends the replacement of the code point to the string.
  template <class To>
  SourcedText mapped(To&& to) const {
    SourcedText result;
    size_t at = 0;
    std::string mapped;
    for (const TextRun& run : runs_) {
      mapped.clear();
      while (at < run.end) to(mapped, next_code_point(bytes_, at));
      result.add(mapped, run);
    }
    return result;
  }

 private:
  void add(std::string_view bytes, TextRun run);

  std::string bytes_;
  std::vector<TextRun> runs_;
  bool is_markup_ = false;
};

// The end of the code point at `at`.
inline size_t after_code_point(std::string_view text, size_t at) {
  next_code_point(text, at);
  return at;
}
size_t count_code_points(std::string_view text);

// Python's str.isspace() for a code point.
bool is_space(char32_t code_point);
// The bytes [begin, end) that remain after stripping white space, or the code points of `characters` if there
// are any.
struct StrippedRange {
  size_t begin, end;
};
StrippedRange stripped(std::string_view text, bool left, bool right, std::string_view characters = {});

// The first byte of `part` in `text` from `at` on, in linear time; npos if there is none.
size_t find_part(std::string_view text, std::string_view part, size_t at = 0);

// Python's upper() and lower(). Throw an Error for the few characters whose mapping depends on their
// neighbors or has several characters, such as the German sharp s.
SourcedText upper(const SourcedText& text);
SourcedText lower(const SourcedText& text);

}  // namespace flatshard
