#pragma once
// The word that a user may have meant by a misspelt one.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace flatshard {

// Insertions, deletions, replacements and swaps of neighbouring bytes that turn one word into the other.
size_t edit_distance(const std::string& a, const std::string& b);

// That distance if it is small, at most a third of the longer word; otherwise one is no misspelling of the
// other.
std::optional<size_t> misspelling(const std::string& a, const std::string& b);

// The known word that differs least, the first of equals; "" if the word is a misspelling of none.
std::string similar_word(const std::string& word, const std::vector<std::string>& known);

}  // namespace flatshard
