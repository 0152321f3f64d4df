#include "runtime/whole_file.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/resource.h>

#include "runtime/check.h"

namespace flatshard {
namespace fs = std::filesystem;

std::string unfinished_name(const std::string& path) { return path + ".tmp"; }

void finish_file(const std::string& path) {
  std::error_code error, ignored;
  fs::rename(unfinished_name(path), path, error);
  if (error) fs::remove(unfinished_name(path), ignored);
  check(!error, path, ": cannot write: ", error.message());
}

void write_whole_file(const std::string& path, std::string_view text) {
  const std::string unfinished = unfinished_name(path);
  std::ofstream out(unfinished, std::ios::binary | std::ios::trunc);
  out.write(text.data(), static_cast<std::streamsize>(text.size()));
  out.close();
  if (!out.good()) {
    const int reason = errno;
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    fail(str(path, ": cannot write: ", std::strerror(reason)));
  }
  finish_file(path);
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
