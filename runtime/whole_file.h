#pragma once
// Reads and writes whole files. Only regular files of limited size are read, so that no pipe blocks a program
// and no device fills its memory. A write is atomic: the file gets a temporary name (temporary.h) and is then
// renamed. It may be lost in a power failure; checkpoint/durable.h is for files that must survive one.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/temporary.h"

namespace flatshard {

// Reads a file. Throws an Error that names it if it cannot be opened, is not a regular file, or has more than
// `most_bytes`.
std::string read_whole_file(const std::string& path, int64_t most_bytes);

// The path of the file that a write to this path replaces: symbolic links are followed. Throws an Error if it
// exists and is not a regular file.
std::string file_to_write(const std::string& path);

// Creates the file or replaces an existing one; symbolic links are followed. Throws an Error that names the
// file, and leaves an existing file unchanged, if the write fails or the path is not a regular file.
void write_whole_file(const std::string& path, std::string_view text);

// A file that is created or replaced like this, but written piece by piece.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view bytes);      // appends
  void overwrite(std::string_view bytes);  // replaces the first bytes
  void complete();                         // writes out all bytes; no more may be added
  void finish();                           // renames the file to its final name
  int64_t size() const { return size_; }

 private:
  void write_buffer();
  void require(bool done) const;

  std::string path_, destination_, buffer_;
  int64_t size_ = 0;
  int file_ = -1;
  Temporary temporary_;
};

// Makes later writes beyond the file size limit (ulimit -f) fail, as on a full disk, instead of ending the
// process by a signal. Raises the limit on open files to the hard limit (ulimit -Hn).
void survive_file_limits();
// The number of files that this process can still open.
int64_t files_left_to_open();

}  // namespace flatshard
