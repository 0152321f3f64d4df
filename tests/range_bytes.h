#pragma once
// Reads all bytes of a part of a file, for tests, whose files are small.

#include <cstddef>
#include <vector>

#include "runtime/input_file.h"

namespace flatshard::test {

inline std::vector<std::byte> range_bytes(const FileRange& range) {
  std::vector<std::byte> bytes(static_cast<size_t>(range.size));
  range.read(0, range.size, bytes.data());
  return bytes;
}

}  // namespace flatshard::test
