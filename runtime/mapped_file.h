#pragma once
// A read-only memory mapping of a file; pages are read on first access. The content is unchecked.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace flatshard {

class MappedFile {
 public:
  // Throws an Error that names the file if it cannot be opened or is not a regular file. An empty file is
  // fine.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return bytes_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace flatshard
