#include "tests/process.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <sys/wait.h>

#include "build_config.h"
#include "runtime/check.h"

namespace flatshard::test {
namespace {

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

constexpr bool kThreadSanitizer = std::string_view(kSanitizer).find("thread") != std::string_view::npos;

// Open MPI uses shared memory alone: looking for other transports takes a quarter of a second.
constexpr const char* kLauncher =
    "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader "
    "mpirun "
    "--oversubscribe ";

std::string quoted(const std::string& text) { return "'" + replace_all(text, "'", "'\\''") + "'"; }

// Commands with the names of programs in place of @.
std::string with_programs(const std::string& command) {
  return replace_all(command, "@",
                     std::filesystem::read_symlink("/proc/self/exe").parent_path().string() + "/");
}

}  // namespace

Finished run_command(const std::string& command, int limit_seconds) {
  // The address sanitizer would report that MPI libraries leak memory at exit, and refuse libraries that a
  // command preloads.
  const std::string shell =
      str("env --default-signal ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 timeout -k 5 ",
          limit_seconds, " sh -c ", quoted(with_programs(command)), " 2>&1 </dev/null");
  std::FILE* pipe = popen(shell.c_str(), "r");
  check(pipe != nullptr, "cannot start a shell");
  Finished finished{0, ""};
  char block[4096];
  for (size_t n; (n = std::fread(block, 1, sizeof block, pipe)) > 0;) finished.output.append(block, n);
  const int status = pclose(pipe);
  finished.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
}

std::string launcher(int ranks) {
  if (ranks == 1) return "";
  return str(kLauncher, "-np ", ranks, ' ');
}

std::string launch(const std::string& arguments) { return with_programs(kLauncher + arguments); }

DefaultSignals::DefaultSignals() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler != SIG_IGN) continue;
    ignored_.push_back(signal);
    std::signal(signal, SIG_DFL);
  }
  sigset_t none;
  sigemptyset(&none);
  pthread_sigmask(SIG_SETMASK, &none, &blocked_);
}

DefaultSignals::~DefaultSignals() {
  pthread_sigmask(SIG_SETMASK, &blocked_, nullptr);
  for (const int signal : ignored_) std::signal(signal, SIG_IGN);
}

std::string no_signals_because() { return kThreadSanitizer ? "the thread sanitizer delays signals" : ""; }

std::string no_ranks_because() {
  if (!kMpiBuilt) return "this build has no MPI";
  if (kThreadSanitizer) return "MPI libraries are not built for the thread sanitizer";
  if (run_command(launcher(2) + "true").exit_code != 0) return "mpirun cannot start two processes here";
  return "";
}

std::string after(const std::string& output, const std::string& marker) {
  const size_t at = output.rfind(marker);
  if (at == std::string::npos) return "";
  const size_t begin = at + marker.size();
  return output.substr(begin, output.find_first_of("\r\n", begin) - begin);
}

}  // namespace flatshard::test
