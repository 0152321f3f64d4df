#pragma once
// A file or folder under a temporary name, until it gets its own: NAME.0123456789abcdef.tmp in the folder of
// NAME. The number is drawn at random and the creation is exclusive, so that programs that write the same
// NAME do not share it. Whatever still has the temporary name is removed when the object goes, and when
// SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGUSR1, SIGUSR2 or SIGXCPU ends the process (batch schedulers
// send the last three). A signal that the program handles or ignores stays as it is.

#include <functional>
#include <string>

namespace flatshard {

class Temporary {
 public:
  // Makes what it is given the path of, exclusively: it returns false, with errno, where it cannot.
  using Create = std::function<bool(const char* path)>;

  // An Error that names the destination where `create` fails.
  Temporary(const std::string& destination, const Create& create);
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const std::string& path() const { return path_; }
  void renamed() { there_ = false; }  // it has its own name

 private:
  std::string path_;
  int slot_ = -1;
  bool there_ = false;
};

}  // namespace flatshard
