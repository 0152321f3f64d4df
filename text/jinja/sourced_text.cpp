#include "text/jinja/sourced_text.h"

#include <algorithm>
#include <clocale>
#include <cstring>
#include <cwctype>

#include "runtime/check.h"

namespace flatshard {
namespace {

// The locale of the C library's tables of letters, which is independent of the user's locale.
locale_t unicode_locale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  check(locale != nullptr, "the C library has no locale C.UTF-8, which the letters of templates need");
  return locale;
}

struct CodeRange {
  char32_t first, last;
};
// Characters in Unicode's SpecialCasing, and letters with a title case of their own.
constexpr CodeRange kSpecialUpper[] = {{0xdf, 0xdf},     {0x149, 0x149},   {0x1c4, 0x1cc},   {0x1f0, 0x1f3},
                                       {0x390, 0x390},   {0x3b0, 0x3b0},   {0x587, 0x587},   {0x10d0, 0x10ff},
                                       {0x1c80, 0x1cbf}, {0x1e96, 0x1e9a}, {0x1f50, 0x1f56}, {0x1f80, 0x1fff},
                                       {0xfb00, 0xfb17}};
constexpr CodeRange kSpecialLower[] = {{0x130, 0x130}, {0x1c4, 0x1cc}, {0x1f1, 0x1f3}, {0x3a3, 0x3a3}};

template <size_t N>
SourcedText with_case(const SourcedText& text, const char* operation, const CodeRange (&special)[N],
                      wint_t (*convert)(wint_t, locale_t)) {
  return text.mapped([&](std::string& out, char32_t c) {
    append_utf8(out, static_cast<char32_t>(convert(static_cast<wint_t>(c), unicode_locale())));
    for (const CodeRange& range : special)
      check(c < range.first || c > range.last, operation, " of U+", std::hex, static_cast<uint32_t>(c),
            " is not supported");
  });
}

}  // namespace

void SourcedText::add(std::string_view bytes, TextRun run) {
  if (bytes.empty()) return;
  check(bytes.size() <= kMostBytes - bytes_.size(), "a text has more than ", kMostBytes, " bytes");
  bytes_ += bytes;
  run.end = bytes_.size();
  const bool same =
      !runs_.empty() && runs_.back().source == run.source && runs_.back().generated == run.generated;
  if (same)
    runs_.back().end = run.end;
  else
    runs_.push_back(run);
}

void SourcedText::append(std::string_view bytes, int32_t source) { add(bytes, {0, source, false}); }

void SourcedText::append(const SourcedText& text, size_t begin, size_t end) {
  const auto first = std::upper_bound(text.runs_.begin(), text.runs_.end(), begin,
                                      [](size_t at, const TextRun& run) { return at < run.end; });
  for (auto run = first; begin < end; ++run) {
    const size_t to = std::min(run->end, end);
    add(std::string_view(text.bytes_).substr(begin, to - begin), *run);
    begin = to;
  }
}

void SourcedText::mark_generated() {
  SourcedText marked;
  for (size_t begin = 0; TextRun run : runs_) {
    const size_t end = run.end;
    run.generated = true;
    marked.add(std::string_view(bytes_).substr(begin, end - begin), run);
    begin = end;
  }
  *this = std::move(marked);
}

SourcedText SourcedText::slice(size_t begin, size_t end) const {
  SourcedText part;
  part.append(*this, begin, end);
  return part;
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at = after_code_point(text, at)) ++count;
  return count;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

StrippedRange stripped(std::string_view text, bool left, bool right, std::string_view characters) {
  const auto removed = [&](size_t at, size_t end) {
    if (characters.empty()) return is_space(next_code_point(text, at));
    return characters.find(text.substr(at, end - at)) != characters.npos;
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end && removed(begin, after_code_point(text, begin)))
    begin = after_code_point(text, begin);
  while (right && begin < end) {
    const size_t last = last_character(text.substr(0, end));
    if (!removed(last, end)) break;
    end = last;
  }
  return {begin, end};
}

size_t find_part(std::string_view text, std::string_view part, size_t at) {
  if (at > text.size()) return text.npos;
  const void* found = memmem(text.data() + at, text.size() - at, part.data(), part.size());
  return found == nullptr ? text.npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

SourcedText upper(const SourcedText& text) {
  return with_case(text, "upper case", kSpecialUpper, towupper_l);
}

SourcedText lower(const SourcedText& text) {
  return with_case(text, "lower case", kSpecialLower, towlower_l);
}

}  // namespace flatshard
