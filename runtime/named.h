#pragma once
// Enums whose values have names, as configs, options and files spell them. One function beside the enum lists
// the names in the order of the values:
//
//   enum class Reduction { exact, sequential, native };
//   constexpr auto value_names(Reduction) { return std::array{"exact", "sequential", "native"}; }
//
// Such an enum can be printed, and named<Reduction>("exact") finds a value by its name.

#include <array>
#include <optional>
#include <ostream>
#include <string_view>
#include <type_traits>

namespace flatshard {

template <class E>
concept Named = std::is_enum_v<E> && requires(E value) {
  value_names(value).size();
};

template <Named E>
constexpr const char* name_of(E value) {
  return value_names(value).at(static_cast<size_t>(value));
}

template <Named E>
std::ostream& operator<<(std::ostream& out, E value) {
  return out << name_of(value);
}

// The value with this name; nullopt if there is none.
template <Named E>
constexpr std::optional<E> named(std::string_view name) {
  constexpr auto kNames = value_names(E{});
  for (size_t i = 0; i < kNames.size(); ++i)
    if (name == kNames[i]) return static_cast<E>(i);
  return {};
}

}  // namespace flatshard
