#pragma once
// A file that grows during a run, and that losing costs only a warning.

#include <string>
#include <string_view>

namespace flatshard {

class AppendedFile {
 public:
  // Replaces the file by this text, or adds the text to it; an Error if it cannot be written.
  enum class Begin { empty, at_end };
  AppendedFile(const std::string& path, std::string_view text, Begin begin = Begin::empty);
  ~AppendedFile();
  AppendedFile(const AppendedFile&) = delete;
  AppendedFile& operator=(const AppendedFile&) = delete;

  // Hands the bytes to the system at once, so that they survive the process. Never fails: what cannot be
  // written, as on a full disk, is kept and written before the next bytes. The first failure logs a warning.
  void append(std::string_view bytes);

 private:
  std::string path_, unwritten_;
  int file_;
  bool warned_ = false;
};

}  // namespace flatshard
