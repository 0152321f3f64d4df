#pragma once
// Errors. Anything that a user, a file, the network or a device can get wrong throws an Error that states the
// value and the bound; only a program's main catches it. check() builds its message only on failure, so it is
// cheap enough for hot paths.

#include <source_location>
#include <sstream>
#include <stdexcept>
#include <string>

namespace flatshard {

struct Error : std::runtime_error {
  Error(const std::string& text, std::source_location at) : std::runtime_error(text), where(at) {}
  std::source_location where;
};

// The concatenation of the parts, each printed with <<.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return std::move(out).str();
}

[[noreturn]] inline void fail(const std::string& text,
                              std::source_location where = std::source_location::current()) {
  throw Error(text, where);
}

// A condition with the source location of the check.
struct Condition {
  Condition(bool is_true, std::source_location at = std::source_location::current())
      : holds(is_true), where(at) {}
  bool holds;
  std::source_location where;
};

// check(n > 0, "n is ", n, ", must be positive")
template <class... Parts>
void check(Condition condition, const Parts&... parts) {
  if (!condition.holds) [[unlikely]]
    fail(str(parts...), condition.where);
}

}  // namespace flatshard
