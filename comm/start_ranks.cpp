#include "comm/start_ranks.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "runtime/check.h"

namespace flatshard {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr const char* kStartsName = ".rank-starts-";
constexpr std::chrono::seconds kBetweenLooks{1};
// A launcher takes a moment to end after its ranks; other hosts' ranks may end a little later than those
// here.
constexpr std::chrono::seconds kLongestAfterRanks{30};

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
  ~AwaitedStart() { has_none(); }
  AwaitedStart(const AwaitedStart&) = delete;
  AwaitedStart& operator=(const AwaitedStart&) = delete;

  const std::string& file() const { return file_; }  // "" if it cannot be created
  // Removes the file; returns whether it still existed, so that no rank has started.
  bool has_none() const { return !file_.empty() && unlink(file_.c_str()) == 0; }

 private:
  std::string file_;
};

// Runs the launcher in the child process. A launcher that reads a terminal from the background would be
// suspended, so it reads nothing.
[[noreturn]] void become_launcher(const Launcher& launcher, const std::vector<std::string>& arguments,
                                  const sigset_t& signals_before) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  setenv(kStartedByUs, launcher.options.c_str(), 1);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string(),
                    script = "exec " + launcher.command + " \"$@\"";
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

// The ranks on this host that were given this file.
std::vector<pid_t> ranks_here(const std::string& file) {
  const std::string argument = str(kStartsOption, '=', file) + '\0';
  const fs::path self = fs::read_symlink("/proc/self/exe");
  std::vector<pid_t> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc() || pid == getpid())
      continue;
    std::error_code error;
    if (fs::read_symlink(entry.path() / "exe", error) != self) continue;  // the launcher names the file, too
    std::ifstream in(entry.path() / "cmdline", std::ios::binary);
    const std::string words(std::istreambuf_iterator<char>(in), {});
    if (words.find(argument) != words.npos) found.push_back(pid);
  }
  return found;
}

// Tells when a launcher has outlived the ranks of this host for too long.
class AfterRanks {
 public:
  explicit AfterRanks(const std::string& file) : file_(file) {}
  bool is_too_long() {
    if (file_.empty()) return false;
    const bool any = !ranks_here(file_).empty();
    if (any) last_ = Clock::now();
    return last_ && Clock::now() - *last_ > kLongestAfterRanks;
  }

 private:
  const std::string& file_;
  std::optional<Clock::time_point> last_;  // when a rank was seen last
};

// Waits for one of these signals; 0 if none has come in a while.
int next_signal(const sigset_t& handled) {
  const timespec most{.tv_sec = kBetweenLooks.count(), .tv_nsec = 0};
  return std::max(0, sigtimedwait(&handled, nullptr, &most));
}

}  // namespace

void announce_start(const std::string& file) {
  if (fs::path(file).filename().string().starts_with(kStartsName)) unlink(file.c_str());
}

void end_ranks(const std::string& file) {
  for (std::vector<pid_t> left = ranks_here(file); !left.empty(); left = ranks_here(file)) {
    for (const pid_t rank : left) kill(rank, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

RanksEnded start_ranks(const Launcher& launcher, std::vector<std::string> arguments) {
  const AwaitedStart start;
  if (!start.file().empty()) arguments.insert(arguments.begin(), str(kStartsOption, '=', start.file()));
  sigset_t before;
  const sigset_t handled = handled_signals();
  sigprocmask(SIG_BLOCK, &handled, &before);
  const pid_t child = fork();
  check(child >= 0, "cannot start a process: ", std::strerror(errno));
  if (child == 0) become_launcher(launcher, arguments, before);
  RanksEnded ended{.file = start.file()};
  AfterRanks after(start.file());
  for (int requests = 0;;) {
    const int signal = next_signal(handled);
    if (signal == SIGCHLD) {
      int status = 0;
      if (waitpid(child, &status, WNOHANG) != child) continue;
      sigprocmask(SIG_SETMASK, &before, nullptr);
      const bool missing = start.has_none();
      check(!missing || status != 0, "the launcher ended without starting a rank of ",
            program_invocation_short_name, ": ", launcher.command,
            ": give a command that runs the program after it, such as \"mpirun -np 2\"");
      ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      ended.asked_to_stop = requests > 0;
      return ended;
    }
    if (signal != 0 && (signal != SIGHUP || requests == 0)) pass_on(child, signal, ++requests);
    if (signal == 0 && launcher.ends_with_ranks && after.is_too_long()) {
      ended.hung = true;
      kill(-child, SIGKILL);
    }
  }
}

}  // namespace flatshard
