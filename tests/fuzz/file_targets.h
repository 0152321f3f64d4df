#pragma once
// Readers of untrusted files as functions of arbitrary bytes. The bytes must be refused with an Error, or
// accepted and then satisfy the invariants of the format. The same functions run under libFuzzer
// (file_fuzz.cpp) and over the files of corpus/ in every test run.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace flatshard::test {

struct FileTarget {
  const char* name;  // name of the target, and of its folder in corpus/
  // Returns the reason why the bytes were refused; "" if they are accepted. Throws a std::logic_error that
  // names a violated invariant.
  std::string (*run)(std::span<const std::byte> bytes);
};

std::span<const FileTarget> file_targets();
// Throws an Error if there is no target of this name.
const FileTarget& file_target(std::string_view name);

}  // namespace flatshard::test
