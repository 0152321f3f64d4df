#include "checkpoint/durable.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include "runtime/check.h"

namespace flatshard {
namespace {

// A file descriptor and its path, for messages.
class Opened {
 public:
  Opened(const std::string& path, int flags)
      : path_(path), file_(open(path.c_str(), flags | O_CLOEXEC, 0666)) {
    require(file_ >= 0);
  }
  ~Opened() {
    if (file_ >= 0) close(file_);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  void write_all(std::string_view text) {
    while (!text.empty()) {
      const ssize_t written = write(file_, text.data(), text.size());
      if (written < 0 && errno == EINTR) continue;
      require(written > 0);
      text.remove_prefix(static_cast<size_t>(written));
    }
  }
  void sync() { require(fsync(file_) == 0); }
  void finish() {
    const int file = file_;
    file_ = -1;
    require(close(file) == 0);
  }

 private:
  void require(bool done) const { check(done, path_, ": cannot write: ", std::strerror(errno)); }

  std::string path_;
  int file_;
};

}  // namespace

std::string unfinished_name(const std::string& path) { return path + ".tmp"; }

void write_durable(const std::string& path, std::string_view text) {
  unlink(path.c_str());  // prevents a write through a link or pipe of that name
  Opened file(path, O_WRONLY | O_CREAT | O_EXCL);
  file.write_all(text);
  file.sync();
  file.finish();
}

void sync_folder(const std::string& path) { Opened(path, O_RDONLY | O_DIRECTORY).sync(); }

void rename_durable(const std::string& from, const std::string& to) {
  const bool renamed = std::rename(from.c_str(), to.c_str()) == 0;
  check(renamed, from, ": cannot rename to ", to, ": ", std::strerror(errno));
  sync_folder(std::filesystem::absolute(to).parent_path().string());
}

}  // namespace flatshard
