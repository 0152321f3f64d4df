#pragma once
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

#include <functional>
#include <string>

namespace flatshard {

// is_script(name) says whether PCRE2 knows the script.
std::string pcre2_syntax(const std::string& pattern,
                         const std::function<bool(const std::string&)>& is_script);

}  // namespace flatshard
