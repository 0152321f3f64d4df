#include "runtime/appended_file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "runtime/check.h"
#include "runtime/log.h"
#include "runtime/whole_file.h"

namespace flatshard {

AppendedFile::AppendedFile(const std::string& path, std::string_view text, Begin begin) : path_(path) {
  constexpr int kAccess = 0666;
  if (begin == Begin::empty) write_whole_file(path, text);
  file_ =
      open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | (begin == Begin::empty ? 0 : O_CREAT), kAccess);
  check(file_ >= 0, path_, ": cannot write: ", std::strerror(errno));
  if (begin == Begin::at_end) append(text);
}

AppendedFile::~AppendedFile() { close(file_); }

void AppendedFile::append(std::string_view bytes) {
  unwritten_ += bytes;
  while (!unwritten_.empty()) {
    const ssize_t count = ::write(file_, unwritten_.data(), unwritten_.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    unwritten_.erase(0, static_cast<size_t>(count));
  }
  if (unwritten_.empty() || std::exchange(warned_, true)) return;
  log_warning(path_, ": cannot write: ", std::strerror(errno),
              "; the run continues, and the rest is written as soon as possible");
}

}  // namespace flatshard
