#include "text/jinja/jinja_lexer.h"

#include <algorithm>
#include <charconv>

#include "runtime/check.h"
#include "text/jinja/sourced_text.h"

namespace flatshard {
namespace {

using Kind = JinjaToken::Kind;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_begin(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}

// Converts all line breaks to \n, and removes one at the end.
std::string with_plain_line_breaks(std::string_view source) {
  std::string text;
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  Lexer(std::string_view source, const std::string& name)
      : source_(with_plain_line_breaks(source)), name_(name) {
    const size_t valid = valid_utf8_prefix(source_);
    if (valid == source_.size()) return;
    move_to(valid);
    fail_here("not UTF-8");
  }

  std::vector<JinjaToken> run() {
    while (at_ < source_.size()) {
      const size_t tag = next_tag();
      if (tag == source_.npos) {
        add_data(source_.size());
        break;
      }
      const char kind = source_[tag + 1];
      const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      add_data(end_of_data(tag, sign, kind == '{'));
      move_to(tag + 2 + (sign == '-' || sign == '+' ? 1 : 0));
      if (kind == '#')
        skip_comment();
      else if (kind == '%' && at_raw())
        take_raw();
      else
        take_tag(kind == '%');
    }
    add(Kind::end);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_here(const std::string& reason) const { fail(str(name_, ':', line_, ": ", reason)); }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool follows(std::string_view text) const { return rest().starts_with(text); }

  JinjaToken& add(Kind kind, std::string text = "") {
    return tokens_.emplace_back(JinjaToken{.kind = kind, .line = line_, .text = std::move(text)});
  }
  void move_to(size_t at) {
    line_ += static_cast<int>(std::count(source_.begin() + at_, source_.begin() + at, '\n'));
    at_ = at;
  }
  void skip_space() { move_to(at_ + stripped(rest(), true, false).begin); }

  size_t next_tag() const {
    for (size_t at = source_.find('{', at_); at != source_.npos; at = source_.find('{', at + 1))
      if (at + 1 < source_.size() && std::string_view("{%#").find(source_[at + 1]) != std::string_view::npos)
        return at;
    return source_.npos;
  }

  // The end of the text before the tag, after removing white space as the tag's sign demands.
  size_t end_of_data(size_t tag, char sign, bool is_output) const {
    const std::string_view text = std::string_view(source_).substr(at_, tag - at_);
    if (sign == '-') return at_ + stripped(text, false, true).end;
    if (sign == '+' || is_output) return tag;
    const size_t line_break = text.rfind('\n');
    if (line_break == text.npos && !line_starts_) return tag;
    const size_t begin = line_break == text.npos ? 0 : line_break + 1;
    const StrippedRange visible = stripped(text.substr(begin), true, false);
    return visible.begin == visible.end ? at_ + begin : tag;
  }

  void add_data(size_t end) {
    if (end > at_) add(Kind::data, source_.substr(at_, end - at_));
    move_to(end);
  }

  // Takes the end of a tag, after its sign, and removes the white space that the tag controls from the text
  // after it.
  void take_end(char sign, std::string_view closing, bool trims) {
    move_to(at_ + closing.size());
    if (sign == '-')
      skip_space();
    else if (trims && sign != '+' && follows("\n"))
      move_to(at_ + 1);
    line_starts_ = source_[at_ - 1] == '\n';
  }

  void skip_comment() {
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) fail_here("a comment has no end #}");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    move_to(end);
    take_end(sign, "#}", true);
  }

  bool at_raw() const {
    std::string_view text = rest();
    text.remove_prefix(stripped(text, true, false).begin);
    if (!text.starts_with("raw")) return false;
    text.remove_prefix(3);
    text.remove_prefix(stripped(text, true, false).begin);
    return text.starts_with("%}") || text.starts_with("-%}");
  }

  void take_raw() {
    const size_t open = source_.find("%}", at_);
    const char sign = source_[open - 1];
    move_to(open);
    take_end(sign, "%}", false);
    for (size_t tag = source_.find("{%", at_); tag != source_.npos; tag = source_.find("{%", tag + 1)) {
      size_t word = tag + 2;
      const char end_sign = word < source_.size() ? source_[word] : '\0';
      if (end_sign == '-' || end_sign == '+') ++word;
      word += stripped(std::string_view(source_).substr(word), true, false).begin;
      if (source_.compare(word, 6, "endraw") != 0) continue;
      word += 6;
      word += stripped(std::string_view(source_).substr(word), true, false).begin;
      const char last = word < source_.size() ? source_[word] : '\0';
      const bool has_sign = last == '-' || last == '+';
      if (source_.compare(word + (has_sign ? 1 : 0), 2, "%}") != 0) continue;
      add_data(end_of_data(tag, end_sign, false));
      move_to(word + (has_sign ? 1 : 0));
      return take_end(last, "%}", true);
    }
    fail_here("{% raw %} has no {% endraw %}");
  }

  void take_tag(bool is_block) {
    const std::string_view closing = is_block ? "%}" : "}}";
    add(is_block ? Kind::block_begin : Kind::output_begin);
    open_.clear();
    while (true) {
      skip_space();
      if (at_ == source_.size()) fail_here(str("a tag has no end ", closing));
      if (open_.empty()) {
        const char sign = source_[at_];
        const bool has_sign = sign == '-' || (sign == '+' && is_block);
        if (rest().substr(has_sign ? 1 : 0).starts_with(closing)) {
          add(is_block ? Kind::block_end : Kind::output_end);
          move_to(at_ + (has_sign ? 1 : 0));
          return take_end(has_sign ? sign : '\0', closing, is_block);
        }
      }
      take_word();
    }
  }

  void take_word() {
    const char c = source_[at_];
    if (is_digit(c)) return take_number();
    if (c == '"' || c == '\'') return take_string(c);
    if (!is_name_begin(c)) return take_operator();
    size_t end = at_ + 1;
    while (end < source_.size() && (is_name_begin(source_[end]) || is_digit(source_[end]))) ++end;
    add(Kind::name, source_.substr(at_, end - at_));
    move_to(end);
  }

  void take_number() {
    const bool is_item = !tokens_.empty() && tokens_.back().is_op(".");  // the second number in a.0.1
    size_t end = at_;
    const auto take_digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || (source_[end] == '_' && end > at_))) ++end;
    };
    const auto digit_at = [&](size_t i) { return i < source_.size() && is_digit(source_[i]); };
    take_digits();
    bool is_float = false;
    if (!is_item && source_.compare(end, 1, ".") == 0 && digit_at(end + 1)) {
      is_float = true;
      ++end;
      take_digits();
    }
    if (const size_t sign = end + 1; !is_item && end < source_.size() && (source_[end] | 0x20) == 'e') {
      const bool has_sign = sign < source_.size() && (source_[sign] == '+' || source_[sign] == '-');
      if (digit_at(sign + (has_sign ? 1 : 0))) {
        is_float = true;
        end = sign + (has_sign ? 1 : 0);
        take_digits();
      }
    }
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    JinjaToken& token = add(is_float ? Kind::number : Kind::integer, text);
    const char *begin = text.data(), *last = begin + text.size();
    const auto status = is_float ? std::from_chars(begin, last, token.number).ec
                                 : std::from_chars(begin, last, token.integer).ec;
    if (status != std::errc()) fail_here(str("the number ", text, " is too large"));
    move_to(end);
    if (at_ < source_.size() && is_name_begin(source_[at_])) fail_here("a number ends in a letter");
  }

  void take_operator() {
    for (const std::string_view op : {"**", "//", "==", "!=", ">=", "<="})
      if (follows(op)) {
        add(Kind::op, std::string(op));
        return move_to(at_ + 2);
      }
    const char c = source_[at_];
    if (std::string_view("+-/*%~[](){}=<>.:|,;").find(c) == std::string_view::npos)
      fail_here(str("unexpected character \"", rest().substr(0, after_code_point(source_, at_) - at_), '"'));
    if (c == '(' || c == '[' || c == '{') open_ += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (!open_.ends_with(c)) fail_here(str("unexpected '", c, "'"));
      open_.pop_back();
    }
    add(Kind::op, std::string(1, c));
    move_to(at_ + 1);
  }

  void take_string(char quote) {
    const int line = line_;
    std::string text;
    size_t at = at_ + 1;
    while (at < source_.size() && source_[at] != quote) {
      if (source_[at] != '\\')
        text += source_[at++];
      else
        at = unescape(at + 1, text);
    }
    if (at >= source_.size()) fail_here("a string has no end");
    add(Kind::text, std::move(text)).line = line;
    move_to(at + 1);
  }

  // Appends the character of the escape sequence at `at`, after its backslash. Returns the end of the
  // sequence. As in Python, an unknown sequence stands for itself.
  size_t unescape(size_t at, std::string& text) {
    if (at >= source_.size()) return at;
    constexpr std::string_view kNamed = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    const char c = source_[at];
    for (size_t i = 0; i < kNamed.size(); i += 2)
      if (c == kNamed[i]) {
        text += kNamed[i + 1];
        return at + 1;
      }
    if (c == '\n') return at + 1;
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    const bool octal = c >= '0' && c <= '7';
    if (digits == 0 && !octal) {
      if (c == 'N') fail_here("\\N{...} in a string is not supported");
      text += '\\';
      return at;
    }
    const char* begin = source_.data() + at + (octal ? 0 : 1);
    const char* limit = std::min<const char*>(begin + (octal ? 3 : digits), source_.data() + source_.size());
    uint32_t code = 0;
    const char* end = std::from_chars(begin, limit, code, octal ? 8 : 16).ptr;
    const bool is_valid = octal || static_cast<size_t>(end - begin) == digits;
    if (!is_valid || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
      fail_here(str("invalid escape \\", c, " in a string"));
    append_utf8(text, code);
    return static_cast<size_t>(end - source_.data());
  }

  std::string source_;
  const std::string& name_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // a line begins at at_
  std::string open_;         // the missing closing brackets
  std::vector<JinjaToken> tokens_;
};

}  // namespace

std::vector<JinjaToken> jinja_tokens(std::string_view source, const std::string& name) {
  return Lexer(source, name).run();
}

}  // namespace flatshard
