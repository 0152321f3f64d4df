#pragma once
// Reads and writes whole files. Only regular files of limited size are read, so that no pipe blocks a program
// and no device fills its memory. A write is atomic: the file gets a temporary name (temporary.h) and is then
// renamed. It may be lost in a power failure; checkpoint/durable.h is for files that must survive one.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/temporary.h"

namespace flatshard {

// An Error names the file if it cannot be opened, is not a regular file, or has more than `most_bytes`.
std::string read_whole_file(const std::string& path, int64_t most_bytes);

// The path that a write to this path replaces: symbolic links are followed. An Error if it exists and is not
// a regular file.
std::string file_to_write(const std::string& path);

// Creates the file or replaces an existing one; symbolic links are followed. An Error names the file and
// leaves an existing one unchanged. Replacing a device, a pipe or anything else that is not a regular file is
// an Error.
void write_whole_file(const std::string& path, std::string_view text);

// The same for a file that is written piece by piece.
class NewFile {
 public:
  explicit NewFile(const std::string& path);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::string_view bytes);      // at the end
  void overwrite(std::string_view bytes);  // at the beginning
  void complete();                         // writes out all bytes; none may follow
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

// From now on a write beyond the file size limit (ulimit -f) fails, as on a full disk, instead of ending the
// process by a signal. Raises the limit on open files to the hard limit (ulimit -Hn).
void survive_file_limits();
// The number of files that this process can still open.
int64_t files_left_to_open();

}  // namespace flatshard
