#pragma once
// The filter on the bench's command line: words that a label must all contain, each of which may be several
// alternatives, "14/2|12/2". A dtype may be spelled as in labels, f32 or f16, or as in configs,
// fp32 or fp16.

#include <algorithm>
#include <cctype>
#include <string>
#include <vector>

namespace flatshard::bench {

// The spelling in labels.
inline std::string label_word(const std::string& word) {
  return word == "fp32" ? "f32" : word == "fp16" ? "f16" : word;
}

// A dtype is not found within another: f16 is not found in bf16.
inline bool contains(const std::string& text, const std::string& word) {
  const std::string wanted = label_word(word);
  const bool is_dtype = wanted == "f32" || wanted == "f16";
  size_t at = text.find(wanted);
  while (is_dtype && at != text.npos && at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])))
    at = text.find(wanted, at + 1);
  return at != text.npos;
}

inline bool contains_any(const std::string& text, const std::string& alternatives) {
  for (size_t begin = 0, end = 0; end != alternatives.npos; begin = end + 1) {
    end = alternatives.find('|', begin);
    if (contains(text, alternatives.substr(begin, end - begin))) return true;
  }
  return false;
}

inline bool contains_all(const std::string& text, const std::vector<std::string>& words) {
  return std::all_of(words.begin(), words.end(),
                     [&](const std::string& word) { return contains_any(text, word); });
}

}  // namespace flatshard::bench
