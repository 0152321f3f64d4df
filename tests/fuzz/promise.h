#pragma once
// Used by all fuzz targets. A broken promise is a std::logic_error, and a refusal is the text of an Error.

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

#include "runtime/check.h"

namespace flatshard::test {

inline void require(bool holds, const std::string& promise) {
  if (!holds) throw std::logic_error(promise);
}

inline std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Returns the text of the Error that the work throws; "" if it throws none. Any other exception is a broken
// promise.
template <class Work>
std::string refusal(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    require(*error.what() != '\0', "an Error says nothing");
    return error.what();
  }
  return "";
}

}  // namespace flatshard::test
