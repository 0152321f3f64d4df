#pragma once
// Protects the program from malformed TOML. toml++ 3.3 recurses over dotted keys without a bound, and has
// undefined behavior on some non-ASCII letters outside of quotes, where TOML permits none; so the text is
// checked first. Some text, such as "[,]" and "[}", fails its assertions, which would abort the program;
// CMakeLists.txt redirects them to toml_assert.

#include <cstddef>
#include <string>

namespace flatshard {

inline constexpr size_t kMostNesting = 16;  // most open brackets, and dots in a key; configurations need 3

// An Error "name:line: ..." if the text is nested deeper, or has non-ASCII characters outside of quotes and
// comments.
void check_toml_limits(const std::string& text, const std::string& name);

// Thrown through toml++ instead of aborting the program.
struct BrokenAssertion {};

constexpr void toml_assert(bool holds) {
  if (!holds) throw BrokenAssertion{};
}

}  // namespace flatshard
