#pragma once
// A file that grows during a run, such as a log. If it cannot be written, the run logs a warning and
// continues.

#include <string>
#include <string_view>

namespace flatshard {

class AppendedFile {
 public:
  // Replaces the file by this text, or adds the text to it. Throws an Error if the file cannot be written.
  enum class Begin { empty, at_end };
  AppendedFile(const std::string& path, std::string_view text, Begin begin = Begin::empty);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // Hands the bytes to the system at once, so that they survive the process. Never fails: bytes that cannot
  // be written, as on a full disk, are kept and written before the next ones. The first failure logs a
  // warning.
  void append(std::string_view bytes);

 private:
  std::string path_, unwritten_;
  int file_;
  bool warned_ = false;
};

}  // namespace flatshard
