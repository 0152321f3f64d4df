#pragma once
// The filter of the bench's command lines.

#include <algorithm>
#include <string>
#include <vector>

namespace flatshard::bench {

inline bool contains_all(const std::string& text, const std::vector<std::string>& words) {
  return std::all_of(words.begin(), words.end(),
                     [&](const std::string& word) { return text.find(word) != text.npos; });
}

}  // namespace flatshard::bench
