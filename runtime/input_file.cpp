#include "runtime/input_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/check.h"

namespace flatshard {

InputFile::InputFile(const std::string& path)
    : path_(path),
      file_(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {  // a pipe is refused, not waited for
  check(file_ >= 0, path, ": cannot open: ", std::strerror(errno));
  struct stat status {};
  const bool regular = fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
  if (!regular) close(file_);
  check(regular, path, ": not a regular file");
  size_ = status.st_size;
}

InputFile::~InputFile() { close(file_); }

void InputFile::read(int64_t begin, int64_t count, void* to) const {
  check(begin >= 0 && count >= 0 && begin <= size_ && count <= size_ - begin, path_, ": ", count,
        " bytes from byte ", begin, " of ", size_);
  char* at = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = pread(file_, at, static_cast<size_t>(count), begin);
    if (got < 0 && errno == EINTR) continue;
    check(got >= 0, path_, ": cannot read byte ", begin, ": ", std::strerror(errno));
    if (got == 0) check_size();
    check(got > 0, path_, ": cannot read byte ", begin, " of ", size_);
    at += got;
    begin += got;
    count -= got;
  }
}

void InputFile::check_size() const {
  struct stat status {};
  check(fstat(file_, &status) == 0, path_, ": cannot read: ", std::strerror(errno));
  check(status.st_size == size_, path_, ": has ", status.st_size, " bytes, had ", size_,
        " when it was opened; a file must not change while it is read");
}

void FileRange::read(int64_t first, int64_t count, void* to) const {
  check(first >= 0 && count >= 0 && first <= size && count <= size - first, file->path(), ": ", count,
        " bytes from byte ", first, " of a part of ", size);
  file->read(begin + first, count, to);
}

}  // namespace flatshard
