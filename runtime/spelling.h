#pragma once
// Finds the known word that a user may have meant by a misspelt one.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace flatshard {

// The number of insertions, deletions, replacements and swaps of neighbouring bytes that turn one word into
// the other.
size_t edit_distance(const std::string& a, const std::string& b);

// The edit distance if it is at most a third of the longer word's length; otherwise nullopt.
std::optional<size_t> misspelling(const std::string& a, const std::string& b);

// The known word with the smallest distance, the first of equals; "" if no known word is near enough.
std::string similar_word(const std::string& word, const std::vector<std::string>& known);

}  // namespace flatshard
