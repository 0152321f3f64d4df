#include <algorithm>
#include <memory>
#include <pcre2.h>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/check.h"
#include "text/words/regex.h"

namespace flatshard {
namespace {

constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
// The most work of a search. If the time of a pattern is not proportional to the text, the search throws an
// Error.
constexpr uint64_t kLeastWork = 100'000, kWorkPerByte = 200;
constexpr uint32_t kMostHeap = 1 << 20;  // heap for backtracking, in KiB

std::string message_of(int error) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

struct Compiled {
  std::string pattern;
  std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)> code;
};

pcre2_code* compile(const std::string& pattern, int* error, size_t* at) {
  return pcre2_compile(units(pattern), pattern.size(), kOptions, error, at, nullptr);
}

// Whether PCRE2 knows the script.
bool is_script(const std::string& name) {
  int error = 0;
  size_t at = 0;
  pcre2_code* const code = compile("\\p{sc:" + name + '}', &error, &at);
  pcre2_code_free(code);
  return code != nullptr;
}

// ---- the pattern ----

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

// Rewrites regular expressions from Oniguruma's syntax, which tokenizer files use, into PCRE2's with the same
// meaning:
//   \s \w \h          their sets spelled out, in brackets too; PCRE2's sets differ
//   \p{Han}           the characters of the script, without characters that are also used with it
//   [a&&[^b]] [a[b]]  intersections and unions, as lookaheads and alternatives
//   {n}+ {n}? {,n}    repeated, optional, from 0
//   (?m)              . matches line breaks
//   \b [:alpha:]      by the sets above, and by properties of Unicode
// To count the work of a search, callouts mark all points where an attempt starts or the engine can backtrack
// to: the beginning of the pattern, and the end of every quantifier and of every branch of a group. A callout
// with the number 1 precedes a backreference, which compares as many bytes as its group has.
class Rewriting {
 public:
  explicit Rewriting(std::string_view pattern) : pattern_(pattern) {}

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
    return is_script(name) ? property.substr(0, begin) + "sc:" + name + '}' : property;
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
  std::string out_;
  size_t at_ = 0;
  size_t atom_ = 0;             // start in `out_` of the text that a quantifier would repeat
  std::vector<size_t> groups_;  // starts of the open groups
  bool extended_ = false;       // (?x): # begins a comment
};

// ---- the search ----

// The work that a search has done: callouts, and the bytes between them.
struct Work {
  uint64_t done = 0, most = 0;
  size_t at = 0;
};

int count_work(pcre2_callout_block* block, void* data) {
  Work& work = *static_cast<Work*>(data);
  const size_t at = block->current_position;
  work.done += 1 + (at > work.at ? at - work.at : work.at - at);
  work.at = at;
  if (block->callout_number == 1)
    for (uint32_t i = 1; i < block->capture_top; ++i) {
      const size_t begin = block->offset_vector[2 * i], end = block->offset_vector[2 * i + 1];
      if (begin != PCRE2_UNSET && end > begin) work.done += end - begin;
    }
  return work.done > work.most ? PCRE2_ERROR_CALLOUT : 0;
}

}  // namespace

struct RegexSearch::State {
  explicit State(size_t text_bytes) {
    work.most = kLeastWork + kWorkPerByte * text_bytes;
    pcre2_set_callout(context.get(), count_work, &work);
    pcre2_set_match_limit(context.get(), UINT32_MAX);  // the work is counted instead
    pcre2_set_heap_limit(context.get(), kMostHeap);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> found{
      pcre2_match_data_create(1, nullptr), pcre2_match_data_free};
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context{
      pcre2_match_context_create(nullptr), pcre2_match_context_free};
  Work work;
};

Regex::Regex(const std::string& pattern) {
  const std::string text = Rewriting(pattern).rewritten();
  int error = 0;
  size_t at = 0;
  pcre2_code* const code = compile(text, &error, &at);
  if (code == nullptr) {
    pcre2_code_free(compile(pattern, &error, &at));  // sets `at` to the position in the original pattern
    fail(str("the pattern ", pattern, " is invalid near byte ", std::min(at, pattern.size()), ": ",
             message_of(error)));
  }
  compiled_ = std::make_shared<const Compiled>(Compiled{pattern, {code, pcre2_code_free}});
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if this fails, matching is only slower
}

RegexSearch::RegexSearch(const Regex& regex, std::string_view text)
    : regex_(regex), text_(text), state_(std::make_shared<State>(text.size())) {}

bool RegexSearch::next(size_t from, TextRange* match) {
  const Compiled& compiled = *static_cast<const Compiled*>(regex_.compiled_.get());
  const auto search = [&](uint32_t options) {
    return pcre2_match(compiled.code.get(), units(text_), text_.size(), from, options | PCRE2_NO_UTF_CHECK,
                       state_->found.get(), state_->context.get());
  };
  int result = search(0);
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) result = search(PCRE2_NO_JIT);  // backtracks on the heap instead
  if (result == PCRE2_ERROR_NOMATCH) return false;
  if (result < 0)
    fail(str("the tokenizer's pattern ", compiled.pattern, " cannot be matched at byte ", from,
             " of a text of ", text_.size(), " bytes: ",
             result == PCRE2_ERROR_CALLOUT
                 ? str("it backtracks for more than ", state_->work.most, " steps; split the text")
                 : message_of(result)));
  const size_t* const ends = pcre2_get_ovector_pointer(state_->found.get());
  *match = {ends[0], ends[1]};
  return true;
}

}  // namespace flatshard
