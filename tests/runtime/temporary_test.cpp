#include "runtime/temporary.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/process.h"
#include "tests/test.h"

using namespace flatshard;
namespace fs = std::filesystem;

namespace {

bool make_folder(const char* path) { return mkdir(path, 0777) == 0; }

// A process that has a temporary folder with files, and a temporary file, when the signal arrives.
[[noreturn]] void hold_until(int signal) {
  const test::DefaultSignals defaults;
  std::signal(signal, SIG_DFL);  // the test program handles some
  const Temporary folder("temporary/folder", make_folder);
  for (int i = 0; i < 200; ++i) std::ofstream(str(folder.path(), "/file-", i)) << "text";
  const Temporary file("temporary/file", [](const char* path) { return std::ofstream(path).good(); });
  raise(signal);
  _exit(0);
}

}  // namespace

TEST_CASE("a signal that ends the process removes temporary files, and temporary folders with their files") {
  if (const std::string reason = test::no_signals_because(); !reason.empty()) return test::skip(reason);
  fs::create_directory("temporary");
  for (const int signal : {SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU}) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) hold_until(signal);
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == signal);
    CHECK(fs::is_empty("temporary"));
  }
}

TEST_CASE("the destructor removes a temporary file unless it has been renamed") {
  fs::create_directory("temporary_kept");
  {
    const Temporary dropped("temporary_kept/a", make_folder);
    Temporary kept("temporary_kept/a", make_folder);
    CHECK(dropped.path() != kept.path());
    fs::rename(kept.path(), "temporary_kept/a");
    kept.renamed();
  }
  CHECK(std::distance(fs::directory_iterator("temporary_kept"), {}) == 1);
  CHECK(fs::exists("temporary_kept/a"));
  CHECK(test::error_of([] { Temporary("temporary_no/a", make_folder); }) ==
        "temporary_no/a: cannot write: No such file or directory");
}
