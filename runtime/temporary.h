#pragma once
// A file or folder that has a temporary name until it is renamed: NAME.0123456789abcdef.tmp beside NAME. The
// number is random and the creation is exclusive, so programs that write the same NAME do not share it. If it
// still has the temporary name, the destructor removes it, and so do SIGHUP, SIGINT, SIGQUIT, SIGPIPE,
// SIGTERM, SIGUSR1, SIGUSR2 and SIGXCPU when they end the process (batch schedulers send the last three).
// Signals that the program handles or ignores are left alone.

#include <functional>
#include <string>

namespace flatshard {

class Temporary {
 public:
  // Creates the file or folder exclusively; returns false and sets errno if it cannot.
  using Create = std::function<bool(const char* path)>;

  // Throws an Error that names the destination if `create` fails.
  Temporary(const std::string& destination, const Create& create);
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const std::string& path() const { return path_; }
  void renamed() { exists_ = false; }  // must be called after the rename to the final name

 private:
  std::string path_;
  int registration_ = -1;
  bool exists_ = false;  // the file or folder has the temporary name
};

}  // namespace flatshard
