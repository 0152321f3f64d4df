#include "text/words/regex_syntax.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/check.h"

namespace flatshard {
namespace {

// PCRE2 differs: its \s has U+180E, its \w has no marks, and its \h is a space.
constexpr char kSpaces[] = "\\x09-\\x0d\\x85\\p{Z}";
constexpr char kWords[] =
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}"
    "-\\x{1f189}";
// Superscripts and fractions, which Oniguruma's \w contains only outside of brackets.
constexpr char kLatinNumbers[] = "\\xb2\\xb3\\xb9\\xbc-\\xbe";
constexpr char kHexDigits[] = "0-9A-Fa-f";
constexpr char kCount[] = "(?C)", kCountCaptures[] = "(?C1)";
constexpr int kMostNesting = 100;  // most nesting of brackets

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Rewriting {
 public:
  Rewriting(std::string_view pattern, const std::function<bool(const std::string&)>& is_script)
      : pattern_(pattern), is_script_(is_script) {}

  std::string rewritten() {
    out_ = kCount;
    atom_ = out_.size();
    while (at_ < pattern_.size()) step();
    return std::move(out_);
  }

 private:
  char peek(size_t ahead = 0) const { return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0'; }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  std::string take(size_t count) {
    const std::string text(pattern_.substr(at_, count));
    at_ += text.size();
    return text;
  }
  std::string take_through(char last) {
    const size_t end = pattern_.find(last, at_);
    return take(end == pattern_.npos ? end : end + 1 - at_);
  }

  void step() {
    const char c = peek();
    if (is_quantifier()) return quantifiers();
    if (c == '(') return open_group();
    if (extended_ && c == '#') {
      out_ += take_through('\n');
      return;
    }
    if (c == ')' || c == '|') {
      if (!groups_.empty()) out_ += kCount;
      out_ += take(1);
      if (c == '|') return;
      atom_ = groups_.empty() ? out_.size() : groups_.back();
      if (!groups_.empty()) groups_.pop_back();
      return;
    }
    if ((static_cast<unsigned char>(c) & 0xc0u) != 0x80u) atom_ = out_.size();
    if (c == '[')
      out_ += bracket(0);
    else if (c == '\\')
      out_ += escape();
    else
      out_ += take(1);
  }

  // --- groups ---

  void open_group() {
    atom_ = out_.size();
    if (next_is("(?#") || next_is("(*")) {
      out_ += take_through(')');
      return;
    }
    groups_.push_back(atom_);
    out_ += take(1);
    if (peek() != '?') return;
    const char kind = peek(1);
    if (kind == '<' && peek(2) != '=' && peek(2) != '!') {
      out_ += take_through('>');
    } else if (kind == '(') {
      out_ += peek(2) == '?' ? take(1) : take_through(')');
    } else if (kind == '-' || kind == ')' || (is_letter(kind) && kind != 'R' && kind != 'P')) {
      options();
    } else if (std::string_view(":=!>|<").find(kind) != std::string_view::npos) {
      out_ += take(kind == '<' ? 3 : 2);
    } else {  // a call, such as (?R)
      out_ += take_through(')');
      groups_.pop_back();
    }
  }

  // Parses (?im-x) and (?im-x: where m is PCRE2's s.
  void options() {
    out_ += take(1);
    bool on = true;
    for (; is_letter(peek()) || peek() == '-'; ++at_) {
      if (peek() == '-') on = false;
      if (peek() == 'x') extended_ = on;
      out_ += peek() == 'm' ? 's' : peek();
    }
    if (peek() == ')') groups_.pop_back();
    out_ += take(1);
  }

  // --- quantifiers ---

  // The length of {n}, {n,}, {n,m} or {,m}; 0 if there is none.
  size_t braces() const {
    size_t end = 1, digits = 0;
    for (; is_digit(peek(end)); ++end) ++digits;
    if (peek(end) == ',')
      for (++end; is_digit(peek(end)); ++end) ++digits;
    return peek() == '{' && digits > 0 && peek(end) == '}' ? end + 1 : 0;
  }
  bool is_quantifier() const { return peek() == '*' || peek() == '+' || peek() == '?' || braces() > 0; }

  void quantifiers() {
    for (bool is_first = true; is_quantifier(); is_first = false) {
      if (!is_first) out_ = str(out_.substr(0, atom_), "(?:", out_.substr(atom_), ')');
      const size_t length = braces();
      std::string quantifier = take(std::max<size_t>(1, length));
      if (quantifier.starts_with("{,")) quantifier.insert(1, 1, '0');
      const bool exact = length > 0 && quantifier.find(',') == quantifier.npos;
      if ((peek() == '?' && !exact) || (peek() == '+' && length == 0)) quantifier += take(1);
      out_ += quantifier;
    }
    out_ += kCount;
  }

  // --- characters and sets of them ---

  std::string property() {
    std::string property = take(2);
    if (peek() != '{') return property;
    property += take_through('}');
    const size_t begin = property.find_first_not_of("{^ ", 2), end = property.size() - 1;
    if (begin == property.npos || begin + 3 > end) return property;  // a category has one or two letters
    const std::string name = property.substr(begin, end - begin);
    return is_script_(name) ? property.substr(0, begin) + "sc:" + name + '}' : property;
  }

  // Parses an escape outside of brackets.
  std::string escape() {
    const char letter = peek(1);
    const char* const set = set_of(letter);
    if (set != nullptr) {
      at_ += 2;
      const bool words = letter == 'w' || letter == 'W';
      return str(is_negated(letter) ? "[^" : "[", set, words ? kLatinNumbers : "", ']');
    }
    if (letter == 'k' || (letter >= '1' && letter <= '9')) return str(kCountCaptures, character());
    if (letter != 'b' && letter != 'B') return character();
    at_ += 2;
    const std::string word = str('[', kWords, kLatinNumbers, ']');
    const char *const after = letter == 'b' ? "(?!" : "(?=", *const before = letter == 'b' ? "(?=" : "(?!";
    return str("(?:(?<=", word, ')', after, word, ")|(?<!", word, ')', before, word, "))");
  }
  // Translates [:name:].
  static std::string class_of(const std::string& name) {
    if (name == "[:alpha:]") return "\\p{Alphabetic}";
    if (name == "[:alnum:]") return "\\p{Alphabetic}\\p{Nd}";
    if (name == "[:upper:]") return "\\p{Uppercase}";
    if (name == "[:lower:]") return "\\p{Lowercase}";
    if (name == "[:punct:]") return "\\p{P}\\p{S}";
    if (name == "[:space:]") return kSpaces;
    if (name == "[:blank:]") return "\\t\\p{Zs}";
    return name == "[:word:]" ? kWords : name;
  }
  // Parses an escape that has the same meaning in brackets.
  std::string character() {
    const char letter = peek(1);
    if (letter == 'p' || letter == 'P') return property();
    if (letter == 'u' && at_ + 6 <= pattern_.size()) {
      at_ += 2;
      return "\\x{" + take(4) + '}';
    }
    return take(2);
  }

  static bool is_negated(char letter) { return letter >= 'A' && letter <= 'Z'; }
  static const char* set_of(char letter) {
    switch (letter) {
      case 's':
      case 'S':
        return kSpaces;
      case 'w':
      case 'W':
        return kWords;
      case 'h':
      case 'H':
        return kHexDigits;
      default:
        return nullptr;
    }
  }

  // The content of brackets: plain items, and sets that PCRE2 cannot have in brackets.
  struct Set {
    std::string items;
    std::vector<std::string> others;

    bool is_plain() const { return others.empty() && !items.empty(); }
    std::string text() const {
      if (is_plain()) return '[' + items + ']';
      std::string all = items.empty() ? "" : '[' + items + ']';
      for (const std::string& other : others) all += (all.empty() ? "" : "|") + other;
      return "(?:" + (all.empty() ? "(?!)" : all) + ')';
    }
  };

  // Parses [...] and its content.
  std::string bracket(int nesting) {
    check(nesting < kMostNesting, "brackets are nested more than ", kMostNesting, " levels deep");
    at_ += 1;
    const bool negated = peek() == '^';
    at_ += negated ? 1 : 0;
    Set set;
    std::string before;  // the operands of && before the set, each as a lookahead
    if (peek() == ']') set.items += "\\" + take(1);
    for (; at_ < pattern_.size() && peek() != ']';) {
      if (next_is("[:") && pattern_.find(":]", at_) != pattern_.npos) {
        const size_t end = pattern_.find(":]", at_) + 2;
        set.items += class_of(take(end - at_));
      } else if (peek() == '[') {
        set.others.push_back(bracket(nesting + 1));
      } else if (next_is("&&")) {
        at_ += 2;
        before += "(?=" + std::exchange(set, {}).text() + ')';
      } else if (peek() != '\\') {
        set.items += take(1);
      } else if (const char letter = peek(1); set_of(letter) == nullptr) {
        set.items += character();
      } else {
        at_ += 2;
        if (is_negated(letter))
          set.others.push_back(str("[^", set_of(letter), ']'));
        else
          set.items += set_of(letter);
      }
    }
    const bool closed = at_ < pattern_.size();
    at_ += closed ? 1 : 0;
    if (!closed) return '[' + set.items;  // PCRE2 reports the missing bracket
    if (before.empty() && set.is_plain()) return (negated ? "[^" : "[") + set.items + ']';
    const std::string any = before.empty() ? set.text() : "(?:" + before + set.text() + ')';
    return negated ? "(?:(?!" + any + ")(?s:.))" : any;
  }

  std::string_view pattern_;
  const std::function<bool(const std::string&)>& is_script_;
  std::string out_;
  size_t at_ = 0;
  size_t atom_ = 0;             // start in `out_` of the text that a quantifier would repeat
  std::vector<size_t> groups_;  // starts of the open groups
  bool extended_ = false;       // (?x): # begins a comment
};

}  // namespace

std::string pcre2_syntax(const std::string& pattern,
                         const std::function<bool(const std::string&)>& is_script) {
  return Rewriting(pattern, is_script).rewritten();
}

}  // namespace flatshard
