#pragma once
// Files that are read and written as a whole. What is read is a regular file of limited size, so that no pipe
// makes a program wait and no device fills its memory. What is written is there whole or not at all: it is
// written under a temporary name (temporary.h) and then renamed. This is for files that may be lost with the
// machine's power; checkpoint/durable.h is for others.

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/temporary.h"

namespace flatshard {

// An Error that names the file when it cannot be opened, is not a regular file, or is larger than that.
std::string read_whole_file(const std::string& path, int64_t most_bytes);

// Where a file of this name would stand: at the end of symbolic links. An Error when something other than a
// regular file is there.
std::string file_to_write(const std::string& path);

// Replaces what has the name so far, or follows a symbolic link and replaces the file there. An Error names
// the file, and leaves the one before it as it was. It is an Error when the name belongs to a device, a pipe
// or anything else that is not a regular file.
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
  void complete();                         // has no more bytes; they are all written when it returns
  void finish();                           // gives the file its name
  int64_t size() const { return size_; }

 private:
  void write_buffer();
  void require(bool done) const;

  std::string path_, destination_, buffer_;
  int64_t size_ = 0;
  int file_ = -1;
  Temporary temporary_;
};

// A write beyond a limit on the size of files (ulimit -f) fails from now on, as on a full disk; else a signal
// would end the process. The number of open files may reach the hard limit (ulimit -Hn).
void survive_file_limits();
// How many more files this process can open before it reaches its limit.
int64_t files_left_to_open();

}  // namespace flatshard
