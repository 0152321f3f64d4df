#include <algorithm>
#include <array>
#include <cassert>
#include <memory>
#include <utf8proc.h>

#include "runtime/utf8.h"
#include "text/words/unicode.h"

namespace flatshard {
namespace {

constexpr char32_t kCodePoints = 0x110000;

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || c == 0x85 || c == 0x2028 || c == 0x2029 ||
         utf8proc_category(static_cast<int32_t>(c)) == UTF8PROC_CATEGORY_ZS;
}

// Symbols that are alphabetic: letters in circles and squares.
bool is_enclosed_letter(char32_t c) {
  return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
         (c >= 0x1f170 && c <= 0x1f189);
}

struct CodePoints {
  char32_t first, last;
};

template <size_t N>
bool is_in(const CodePoints (&ranges)[N], char32_t c) {
  const CodePoints* const range = std::partition_point(std::begin(ranges), std::end(ranges),
                                                       [c](const CodePoints& r) { return r.last < c; });
  return range != std::end(ranges) && c >= range->first;
}

// The punctuation of Hugging Face's tokenizers is that of Unicode 8; later versions added marks, and moved
// two of them to other categories.
bool is_punctuation(char32_t c, utf8proc_category_t category) {
  constexpr CodePoints kLater[] = {
      {0x61d, 0x61d},     {0x9fd, 0x9fd},     {0xa76, 0xa76},     {0xc77, 0xc84},     {0x1b4e, 0x1b4f},
      {0x1b7d, 0x1b7f},   {0x2e43, 0x2e63},   {0x10d6e, 0x10d6e}, {0x10ead, 0x10ed0}, {0x10f55, 0x10f89},
      {0x113d4, 0x113d8}, {0x1144b, 0x1145d}, {0x11660, 0x1166c}, {0x116b9, 0x116b9}, {0x1183b, 0x1183b},
      {0x11944, 0x11946}, {0x119e2, 0x119e2}, {0x11a3f, 0x11a46}, {0x11a9a, 0x11aa2}, {0x11b00, 0x11b09},
      {0x11be1, 0x11be1}, {0x11c41, 0x11c71}, {0x11ef7, 0x11ef8}, {0x11f43, 0x11f4f}, {0x11fff, 0x11fff},
      {0x12ff1, 0x12ff2}, {0x16d6d, 0x16d6f}, {0x16e97, 0x16e9a}, {0x16fe2, 0x16fe2}, {0x1e5ff, 0x1e5ff},
      {0x1e95e, 0x1e95f}};
  if (c < 0x80 && category >= UTF8PROC_CATEGORY_SM && category <= UTF8PROC_CATEGORY_SO) return true;
  if (c == 0x166d || c == 0x111c9) return true;
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO && !is_in(kLater, c);
}

uint8_t sets_of(char32_t c) {
  const auto category = utf8proc_category(static_cast<int32_t>(c));
  const auto within = [&](int first, int last) { return category >= first && category <= last; };
  const bool letter = within(UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_LO);
  const bool number = within(UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
  const bool mark = within(UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
  const bool word = letter || mark || (number && category != UTF8PROC_CATEGORY_NO) ||
                    category == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d || is_enclosed_letter(c);
  return static_cast<uint8_t>((letter ? kLetter : 0) | (number ? kNumber : 0) | (is_space(c) ? kSpace : 0) |
                              (is_punctuation(c, category) ? kPunctuation : 0) | (word ? kWord : 0));
}

bool is_surrogate(char32_t c) { return c >= 0xd800 && c < 0xe000; }

bool composes(NormalForm form) { return form == NormalForm::nfc || form == NormalForm::nfkc; }

// Characters newer than Unicode 9 that have a decomposition or a combining class. Hugging Face's tokenizers
// normalizes by Unicode 9 and leaves them unchanged, and ids must be the same.
bool is_too_new(char32_t c) {
  constexpr CodePoints kRanges[] = {
      {0x7fd, 0x7fd},     {0x897, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},     {0xd3b, 0xd3c},
      {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1af0},   {0x1df6, 0x1dfa},   {0x32ff, 0x32ff},
      {0xa7f1, 0xa7f4},   {0xa82c, 0xa82c},   {0xab69, 0xab69},   {0x105c9, 0x105e4}, {0x10781, 0x107bf},
      {0x10d24, 0x10d27}, {0x10d69, 0x10d6d}, {0x10eab, 0x10eff}, {0x10f46, 0x10f85}, {0x11070, 0x11070},
      {0x1133b, 0x1133b}, {0x11383, 0x113e2}, {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11938, 0x11943},
      {0x119e0, 0x119e0}, {0x11a34, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d45}, {0x11d97, 0x11d97},
      {0x11f41, 0x11f42}, {0x16121, 0x1612f}, {0x16d63, 0x16d6a}, {0x16ff0, 0x16ff1}, {0x1ccd6, 0x1ccf9},
      {0x1e030, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1e5ee, 0x1e5ef},
      {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9}};
  return is_in(kRanges, c);
}

int combining_class(char32_t c) {
  return is_too_new(c) ? 0 : utf8proc_get_property(static_cast<int32_t>(c))->combining_class;
}

struct Decomposed {
  char32_t c;
  uint32_t origin;
};

void decompose(NormalForm form, char32_t c, uint32_t origin, std::vector<Decomposed>* out) {
  if (is_too_new(c)) {
    out->push_back({c, origin});
    return;
  }
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  std::array<int32_t, 32> parts;  // the longest decomposition has 18 characters
  int boundary = 0;
  const auto count =
      utf8proc_decompose_char(static_cast<int32_t>(c), parts.data(), parts.size(), options, &boundary);
  assert(count >= 0 && count <= std::ssize(parts));
  for (ptrdiff_t i = 0; i < count; ++i)
    out->push_back({static_cast<char32_t>(parts[static_cast<size_t>(i)]), origin});
}

// Writes the normal form of characters that do not interact with their neighbors. Marks are sorted here,
// because utf8proc takes quadratic time, which a file with a long run of marks could exploit.
void normalize_segment(NormalForm form, std::vector<Decomposed>& parts, AlignedText* out) {
  for (size_t i = 0; i < parts.size();) {
    size_t end = i + 1;
    if (combining_class(parts[i].c) != 0)
      while (end < parts.size() && combining_class(parts[end].c) != 0) ++end;
    std::stable_sort(
        parts.begin() + static_cast<ptrdiff_t>(i), parts.begin() + static_cast<ptrdiff_t>(end),
        [](const Decomposed& a, const Decomposed& b) { return combining_class(a.c) < combining_class(b.c); });
    i = end;
  }
  std::string bytes;
  if (!composes(form)) {
    for (const Decomposed& part : parts) {
      bytes.clear();
      append_utf8(bytes, part.c);
      out->append(bytes, part.origin);
    }
    return;
  }
  std::vector<int32_t> composed;
  for (const Decomposed& part : parts) composed.push_back(static_cast<int32_t>(part.c));
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  const auto count = utf8proc_normalize_utf32(composed.data(), std::ssize(composed), options);
  for (ptrdiff_t i = 0; i < count; ++i)
    append_utf8(bytes, static_cast<char32_t>(composed[static_cast<size_t>(i)]));
  out->append(bytes, parts.front().origin);
}

// Flags of code points that normalization may skip. kBegins: no preceding character affects its normal form.
// kStays: the character is its own normal form.
constexpr uint8_t kBegins = 1, kStays = 2;

class FormTable {
 public:
  explicit FormTable(NormalForm form) : bits_(new uint8_t[kCodePoints]) {
    std::vector<bool> joins(kCodePoints);  // characters that may compose with the one before
    std::vector<Decomposed> parts;
    if (composes(form))
      for (char32_t c = 0; c < kCodePoints; ++c) {
        parts.clear();
        if (is_surrogate(c)) continue;
        decompose(NormalForm::nfd, c, 0, &parts);
        for (size_t i = 1; i < parts.size(); ++i) joins[parts[i].c] = true;
      }
    AlignedText formed;
    for (char32_t c = 0; c < kCodePoints; ++c) {
      bits_[c] = kBegins | kStays;
      if (is_surrogate(c)) continue;
      parts.clear();
      decompose(form, c, 0, &parts);
      const char32_t first = parts.front().c;
      bool stays = parts.size() == 1 && first == c;
      if (!stays && composes(form)) {
        formed.clear();
        normalize_segment(form, parts, &formed);
        size_t at = 0;
        stays = next_code_point(formed.text, at) == c && at == formed.text.size();
      }
      const bool begins = combining_class(first) == 0 && !joins[first];
      bits_[c] = static_cast<uint8_t>((begins ? kBegins : 0) | (stays ? kStays : 0));
    }
  }
  uint8_t operator[](char32_t c) const { return bits_[c]; }

 private:
  std::unique_ptr<uint8_t[]> bits_;
};

// The table of a form, which is made when it is first needed.
template <NormalForm kForm>
const FormTable& table_of() {
  static const FormTable table(kForm);
  return table;
}

const FormTable& form_table(NormalForm form) {
  constexpr std::array kTables{table_of<NormalForm::nfc>, table_of<NormalForm::nfd>,
                               table_of<NormalForm::nfkc>, table_of<NormalForm::nfkd>};
  return kTables[static_cast<size_t>(form)]();
}

size_t ascii_end(std::string_view text, size_t at) {
  while (at < text.size() && static_cast<unsigned char>(text[at]) < 0x80) ++at;
  return at;
}

}  // namespace

const uint8_t* char_sets() {
  static const std::unique_ptr<uint8_t[]> table = [] {
    std::unique_ptr<uint8_t[]> sets(new uint8_t[kCodePoints]);
    for (char32_t c = 0; c < kCodePoints; ++c) sets[c] = sets_of(c);
    return sets;
  }();
  return table.get();
}

bool normalize(NormalForm form, const AlignedView& text, AlignedText* out) {
  const std::string_view bytes = text.text;
  if (ascii_end(bytes, 0) == bytes.size()) return false;
  const FormTable& table = form_table(form);
  size_t stable = 0;  // start of the last character that begins a segment and stays
  size_t at = 0;
  const auto plain_end = [&] {  // moves `at` to the end of the text that stays unchanged
    while (at < bytes.size()) {
      const size_t here = at;
      if (table[next_code_point(bytes, at)] != (kBegins | kStays)) {
        at = here;
        return;
      }
      stable = here;
    }
  };
  plain_end();
  if (at == bytes.size()) return false;
  out->clear();
  std::vector<Decomposed> parts;
  size_t copied = 0;
  while (at < bytes.size()) {
    size_t first = at;
    const char32_t c = next_code_point(bytes, at);
    if ((table[c] & kBegins) == 0 && first > copied) first = stable;  // it may join the character before it
    out->append(text.sub(copied, first));
    parts.clear();
    for (at = first; at < bytes.size();) {
      const size_t here = at;
      const char32_t next = next_code_point(bytes, at);
      if (here > first && (table[next] & kBegins) != 0) {
        at = here;
        break;
      }
      decompose(form, next, text.origin(here), &parts);
    }
    normalize_segment(form, parts, out);
    copied = at;
    plain_end();
  }
  out->append(text.sub(copied, bytes.size()));
  return true;
}

void lowercase(const AlignedView& text, AlignedText* out) {
  constexpr char32_t kDottedI = 0x130;  // the only character whose lowercase has two
  std::string bytes;
  for (size_t at = 0; at < text.size();) {
    const uint32_t origin = text.origin(at);
    const char32_t c = next_code_point(text.text, at);
    bytes.clear();
    append_utf8(bytes,
                c == kDottedI ? U'i' : static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c))));
    if (c == kDottedI) append_utf8(bytes, 0x307);
    out->append(bytes, origin);
  }
}

}  // namespace flatshard
