#include "runtime/spelling.h"

#include <algorithm>
#include <cstdint>

namespace flatshard {

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

std::string similar_word(const std::string& word, const std::vector<std::string>& known) {
  std::string nearest;
  size_t best = SIZE_MAX;
  for (const std::string& candidate : known) {
    const size_t distance = edit_distance(word, candidate);
    if (3 * distance <= std::max(word.size(), candidate.size()) && distance < best)
      best = distance, nearest = candidate;
  }
  return nearest;
}

}  // namespace flatshard
