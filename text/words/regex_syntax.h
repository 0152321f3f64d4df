#pragma once
// Regular expressions in Oniguruma's syntax, as tokenizer files have them, rewritten in PCRE2's with the same
// meaning:
//   \s \w \h          their sets spelled out, in brackets too; PCRE2 has others
//   \p{Han}           the characters of the script, not those that are also used with it
//   [a&&[^b]] [a[b]]  intersections and unions, as lookaheads and alternatives
//   {n}+ {n}? {,n}    repeated, optional, from 0
//   (?m)              . matches line breaks
//   \b [:alpha:]      by those sets, and by properties of Unicode
// A callout begins the pattern, where every attempt starts, and follows every quantifier and every branch of
// a group, wherever the engine can backtrack to, so that the work of a search can be counted. A callout with
// the number 1 precedes a backreference, which compares as many bytes as its group has.

#include <functional>
#include <string>

namespace flatshard {

// is_script(name) says whether PCRE2 knows the script.
std::string pcre2_syntax(const std::string& pattern,
                         const std::function<bool(const std::string&)>& is_script);

}  // namespace flatshard
