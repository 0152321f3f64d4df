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

#include "runtime/check.h"

namespace flatshard {
namespace {

// In the child. A launcher that reads a terminal from the background would be suspended, so it reads nothing.
[[noreturn]] void become_launcher(const std::string& launcher, const std::vector<std::string>& arguments,
                                  const sigset_t& signals_before) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setenv(kStartedByUs, "1", 1);
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
    constexpr char kClearLine[] = "\r\x1b[K";  // with the ^C that the terminal shows
    const ssize_t ignored = write(STDOUT_FILENO, kClearLine, sizeof kClearLine - 1);
    static_cast<void>(ignored);
  }
  kill(launcher, SIGUSR1);  // the first stops the ranks after their step, the second ends them
  if (requests == 2) kill(launcher, SIGTERM);
  if (requests > 2) kill(-launcher, SIGKILL);
}

}  // namespace

int start_ranks(const std::string& launcher, const std::vector<std::string>& arguments) {
  sigset_t handled, before;
  sigemptyset(&handled);
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGCHLD}) sigaddset(&handled, signal);
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
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    if (signal != SIGHUP || requests == 0) pass_on(child, signal, ++requests);
  }
}

}  // namespace flatshard
