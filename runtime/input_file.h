#pragma once
// A file for random-access reads into the caller's memory. Nothing is cached in this process. A file that is
// truncated while it is open causes an Error, where a memory mapping would crash the process. Safe for
// concurrent reads.

#include <cstdint>
#include <string>

namespace flatshard {

class InputFile {
 public:
  // An Error that names the file when it cannot be opened or is not a regular file.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // in bytes, when it was opened
  int descriptor() const { return file_; }
  // Bytes [begin, begin + count).
  void read(int64_t begin, int64_t count, void* to) const;
  // An Error unless the file still has the size that it was opened with.
  void check_size() const;

 private:
  std::string path_;
  int file_;
  int64_t size_ = 0;
};

// Some bytes of a file, which must outlive them.
struct FileRange {
  const InputFile* file = nullptr;
  int64_t begin = 0, size = 0;

  // Bytes [first, first + count) of them.
  void read(int64_t first, int64_t count, void* to) const;
};

}  // namespace flatshard
