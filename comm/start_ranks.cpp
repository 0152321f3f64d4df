#include "comm/start_ranks.h"

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr const char* kStartsName = ".rank-starts-";

// A file in the current folder that exists until a rank removes it. Ranks on other hosts see the folder, too.
class AwaitedStart {
 public:
  AwaitedStart() {
    std::error_code error;
    file_ = (std::filesystem::current_path(error) / kStartsName).string() + "XXXXXX";
    const int file = mkostemp(file_.data(), O_CLOEXEC);
    if (file < 0)
      file_.clear();
    else
      close(file);
  }
  ~AwaitedStart() { is_missing(); }
  AwaitedStart(const AwaitedStart&) = delete;
  AwaitedStart& operator=(const AwaitedStart&) = delete;

  const std::string& file() const { return file_; }  // "" if it cannot be created
  // Removes the file; returns whether it still existed, so that no rank has started.
  bool is_missing() {
    const std::string file = std::exchange(file_, "");
    return !file.empty() && unlink(file.c_str()) == 0;
  }

 private:
  std::string file_;
};

// Runs the launcher in the child process. A launcher that reads a terminal from the background would be
// suspended, so it reads nothing.
[[noreturn]] void become_launcher(const std::string& launcher, const std::vector<std::string>& arguments,
                                  const sigset_t& signals_before) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setenv(kStartedByUs, launcher.c_str(), 1);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string(),
                    script = "exec " + launcher + " \"$@\"";
  std::vector<const char*> words{"sh", "-c", script.c_str(), "sh", program.c_str()};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  words.push_back(nullptr);
  sigprocmask(SIG_SETMASK, &signals_before, nullptr);
  execv("/bin/sh", const_cast<char* const*>(words.data()));
  _exit(127);
}

void pass_on(pid_t launcher, int signal, int requests) {
  if (isatty(STDOUT_FILENO) && signal == SIGINT) {
    constexpr char kClearLine[] = "\r\x1b[K";  // clears the ^C that the terminal shows
    const ssize_t ignored = write(STDOUT_FILENO, kClearLine, sizeof kClearLine - 1);
    static_cast<void>(ignored);
  }
  kill(launcher, SIGUSR1);  // the first stops the ranks after their step, the second ends them
  if (requests == 2) kill(launcher, SIGTERM);
  if (requests > 2) kill(-launcher, SIGKILL);
}

// The signals to wait for. Ignored signals are left out: once blocked, they would reach sigwait().
sigset_t handled_signals() {
  std::signal(SIGCHLD, SIG_DFL);  // if it is ignored, the launcher's exit code is lost
  sigset_t handled;
  sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGCHLD}) {
    struct sigaction now {};
    sigaction(signal, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&handled, signal);
  }
  return handled;
}

}  // namespace

void announce_start(const std::string& file) {
  if (std::filesystem::path(file).filename().string().starts_with(kStartsName)) unlink(file.c_str());
}

int start_ranks(const std::string& launcher, std::vector<std::string> arguments) {
  AwaitedStart start;
  if (!start.file().empty()) arguments.insert(arguments.begin(), str(kStartsOption, '=', start.file()));
  sigset_t before;
  const sigset_t handled = handled_signals();
  sigprocmask(SIG_BLOCK, &handled, &before);
  const pid_t child = fork();
  check(child >= 0, "cannot start a process: ", std::strerror(errno));
  if (child == 0) become_launcher(launcher, arguments, before);
  for (int requests = 0;;) {
    int signal = 0, status = 0;
    sigwait(&handled, &signal);
    if (signal == SIGCHLD) {
      if (waitpid(child, &status, WNOHANG) != child) continue;
      sigprocmask(SIG_SETMASK, &before, nullptr);
      const bool missing = start.is_missing();
      check(!missing || status != 0, "the launcher ended without starting a rank of ",
            program_invocation_short_name, ": ", launcher,
            ": give a command that runs the program after it, such as \"mpirun -np 2\"");
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (signal != SIGHUP || requests == 0) pass_on(child, signal, ++requests);
  }
}

}  // namespace flatshard
