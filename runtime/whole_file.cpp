#include "runtime/whole_file.h"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/resource.h>
#include <unistd.h>
#include <utility>

#include "runtime/check.h"
#include "runtime/input_file.h"

namespace flatshard {
namespace fs = std::filesystem;
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;

}  // namespace

std::string read_whole_file(const std::string& path, int64_t most_bytes) {
  const InputFile file(path);
  check(file.size() <= most_bytes, path, ": has ", file.size(), " bytes, must have at most ", most_bytes);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read(0, file.size(), text.data());
  return text;
}

std::string file_to_write(const std::string& path) {
  check(!path.empty(), "the name of the file to write is empty");
  check(fs::path(path).has_filename(), path, ": cannot write: is not the name of a file");
  std::error_code error;
  const bool link = fs::is_symlink(fs::symlink_status(path, error));
  const fs::file_status status = fs::status(path, error);
  check(status.type() != fs::file_type::directory, path, ": cannot write: Is a directory");
  check(!fs::exists(status) || fs::is_regular_file(status), path,
        ": cannot write: is a device, a pipe or a socket, must be a regular file");
  if (!link) return path;
  const fs::path target = fs::canonical(path, error);
  check(!error, path, ": cannot write: is a symbolic link, and leads to no file: ", error.message());
  return target.string();
}

NewFile::NewFile(const std::string& path)
    : path_(path), destination_(file_to_write(path)), temporary_(destination_, [this](const char* name) {
        file_ = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        return file_ >= 0;
      }) {}

NewFile::~NewFile() {
  if (file_ >= 0) close(file_);
}

void NewFile::require(bool done) const { check(done, path_, ": cannot write: ", std::strerror(errno)); }

void NewFile::write_buffer() {
  for (std::string_view rest = buffer_; !rest.empty();) {
    const ssize_t written = ::write(file_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    require(written > 0);
    rest.remove_prefix(static_cast<size_t>(written));
  }
  buffer_.clear();
}

void NewFile::write(std::string_view bytes) {
  buffer_ += bytes;
  size_ += static_cast<int64_t>(bytes.size());
  if (buffer_.size() >= kBufferBytes) write_buffer();
}

void NewFile::overwrite(std::string_view bytes) {
  write_buffer();
  require(lseek(file_, 0, SEEK_SET) == 0);
  buffer_ = bytes;
  write_buffer();
  require(lseek(file_, 0, SEEK_END) >= 0);
}

void NewFile::complete() {
  write_buffer();
  require(close(std::exchange(file_, -1)) == 0);
}

void NewFile::finish() {
  if (file_ >= 0) complete();
  file_to_write(path_);  // checks again: a device may have taken the name since
  require(std::rename(temporary_.path().c_str(), destination_.c_str()) == 0);
  temporary_.renamed();
}

void write_whole_file(const std::string& path, std::string_view text) {
  NewFile file(path);
  file.write(text);
  file.finish();
}

void survive_file_limits() {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

int64_t files_left_to_open() {
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur > INT64_MAX) return INT64_MAX;
  std::error_code none;
  const fs::directory_iterator open("/proc/self/fd", none);
  return static_cast<int64_t>(files.rlim_cur) - std::distance(begin(open), end(open));
}

}  // namespace flatshard
