#pragma once
// What keeps malformed TOML from taking the program down. toml++ 3.3 recurses over dotted keys without a
// bound, and its behaviour is undefined on some letters that are not ASCII outside of quotes, where TOML has
// none; so text is looked at first and refused. And some text, such as "[,]" and "[}", breaks its assertions,
// which would stop the program: CMakeLists.txt has it call toml_assert instead.

#include <cstddef>
#include <string>

namespace flatshard {

inline constexpr size_t kMostNesting = 16;  // of brackets, and dots in a key; configurations need 3

// An Error "name:line: ..." when the text nests deeper or has other than ASCII outside of quotes and
// comments.
void check_toml_limits(const std::string& text, const std::string& name);

// Thrown out of toml++ where it would have stopped the program.
struct BrokenAssertion {};

constexpr void toml_assert(bool holds) {
  if (!holds) throw BrokenAssertion{};
}

}  // namespace flatshard
