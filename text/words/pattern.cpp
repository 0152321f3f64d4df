#include "text/words/pattern.h"

#include "runtime/utf8.h"
#include "text/words/unicode.h"

namespace flatshard {

Pattern Pattern::expression(const std::string& expression) {
  if (const std::optional<KnownPattern> known = KnownPattern::of(expression)) return Pattern(*known);
  return Pattern(Regex(expression));
}

bool Pattern::next(std::string_view text, size_t from, std::optional<RegexSearch>& search,
                   TextRange* match) const {
  if (const Regex* const regex = std::get_if<Regex>(&kind_)) {
    if (!search) search.emplace(*regex, text);
    return search->next(from, match);
  }
  if (const Sets* const sets = std::get_if<Sets>(&kind_)) {
    const uint8_t* const of = char_sets();
    for (size_t at = from; at < text.size();) {
      const size_t begin = at;
      if ((of[next_code_point(text, at)] & sets->bits) == 0) continue;
      *match = {begin, at};
      return true;
    }
    return false;
  }
  const std::string& literal = std::get<std::string>(kind_);
  const size_t begin = text.find(literal, from);
  if (begin == text.npos) return false;
  *match = {begin, begin + literal.size()};
  return true;
}

}  // namespace flatshard
