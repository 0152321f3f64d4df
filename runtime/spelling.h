#pragma once
// The word that a user may have meant by a misspelt one.

#include <cstddef>
#include <string>
#include <vector>

namespace flatshard {

// Insertions, deletions and replacements of bytes that turn one word into the other.
size_t edit_distance(const std::string& a, const std::string& b);

// The known word that differs least, the first of equals; "" unless most of it is the same.
std::string similar_word(const std::string& word, const std::vector<std::string>& known);

}  // namespace flatshard
