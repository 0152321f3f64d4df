#pragma once
// A file for random-access reads into the caller's memory. Nothing is cached in this process. If the file is
// truncated while it is open, a read throws an Error; a memory mapping would crash the process. Safe for
// concurrent reads.

#include <cstdint>
#include <string>

namespace flatshard {

class InputFile {
 public:
  // Throws an Error that names the file if it cannot be opened or is not a regular file.
  explicit InputFile(const std::string& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }  // size in bytes when the file was opened
  int descriptor() const { return file_; }
  // Reads bytes [begin, begin + count).
  void read(int64_t begin, int64_t count, void* to) const;
  // Throws an Error unless the file still has the size that it had when it was opened.
  void check_size() const;

 private:
  std::string path_;
  int file_;
  int64_t size_ = 0;
};

// A range of bytes of a file. The file must outlive it.
struct FileRange {
  const InputFile* file = nullptr;
  int64_t begin = 0, size = 0;

  // Reads bytes [first, first + count) of the range.
  void read(int64_t first, int64_t count, void* to) const;
};

}  // namespace flatshard
