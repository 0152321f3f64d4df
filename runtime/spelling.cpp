#include "runtime/spelling.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace flatshard {

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    std::swap(before, above);
    std::swap(above, row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({row[j - 1] + 1, above[j] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::optional<size_t> misspelling(const std::string& a, const std::string& b) {
  const size_t longer = std::max(a.size(), b.size()), shorter = std::min(a.size(), b.size());
  if (3 * (longer - shorter) > longer) return {};  // the distance is at least the difference in length
  const size_t distance = edit_distance(a, b);
  return 3 * distance <= longer ? std::optional(distance) : std::nullopt;
}

std::string similar_word(const std::string& word, const std::vector<std::string>& known) {
  std::string nearest;
  size_t best = SIZE_MAX;
  for (const std::string& candidate : known)
    if (const std::optional<size_t> distance = misspelling(word, candidate); distance && *distance < best)
      best = *distance, nearest = candidate;
  return nearest;
}

}  // namespace flatshard
