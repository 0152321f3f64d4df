#pragma once
// The files that come from elsewhere, each as a function of any bytes: what must hold whatever they are. The
// bytes are refused with an Error, or accepted and then keep the format's promises. The same functions run
// under libFuzzer (file_fuzz.cpp) and over the files of corpus/ in every test run.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace flatshard::test {

struct FileTarget {
  const char* name;  // also that of its folder in corpus/
  // Why the bytes were refused; "" where they are accepted. Throws std::logic_error that says which promise
  // is broken.
  std::string (*run)(std::span<const std::byte> bytes);
};

std::span<const FileTarget> file_targets();
// An Error where there is none of this name.
const FileTarget& file_target(std::string_view name);

}  // namespace flatshard::test
