#include "tests/job.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "runtime/check.h"

namespace flatshard::test {
namespace {

constexpr int kLimitSeconds = 60;

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string proc(pid_t pid, const char* name) { return contents(str("/proc/", pid, '/', name)); }

// The value after "NAME" in the status of a process.
std::string status(pid_t pid, const std::string& name) { return after(proc(pid, "status"), name); }

// The processes that mpirun has started so far, by rank.
std::map<int, pid_t> ranks_of(pid_t mpirun) {
  std::map<int, pid_t> found;
  std::istringstream children(proc(mpirun, str("task/", mpirun, "/children").c_str()));
  for (pid_t pid; children >> pid;) {
    const std::string environment = '\0' + proc(pid, "environ"), name = "OMPI_COMM_WORLD_RANK=";
    const size_t at = environment.find('\0' + name);
    if (at != std::string::npos) found[std::atoi(environment.c_str() + at + 1 + name.size())] = pid;
  }
  return found;
}

}  // namespace

bool eventually(const std::function<bool()>& holds, int limit_seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(limit_seconds);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

bool is_gone(pid_t pid) {
  const std::string state = status(pid, "\nState:\t");
  return state.empty() || state.front() == 'Z' || state.front() == 'X';
}

bool handles(pid_t pid, int signal) {
  const std::string caught = status(pid, "\nSigCgt:\t");
  return !caught.empty() && (std::stoull(caught, nullptr, 16) >> (signal - 1) & 1) != 0;
}

Job::Job(const std::string& folder, const std::string& arguments) : output_path_(folder + "/job.txt") {
  // MPI itself leaks: run_command does the same.
  const std::string command = "exec env ASAN_OPTIONS=detect_leaks=0 " + launch(arguments) + " </dev/null";
  mpirun_ = fork();
  check(mpirun_ >= 0, "cannot start a process");
  if (mpirun_ > 0) return;
  const int out = open(output_path_.c_str(), O_CREAT | O_WRONLY | O_TRUNC, 0644);
  if (out < 0 || chdir(folder.c_str()) != 0) _exit(127);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  _exit(127);
}

Job::~Job() {
  if (!ended_) {
    kill(mpirun_, SIGKILL);
    waitpid(mpirun_, nullptr, 0);
  }
  for (const pid_t pid : ranks_)
    if (!is_gone(pid)) kill(pid, SIGKILL);
}

std::string Job::output() const { return contents(output_path_); }

std::vector<pid_t> Job::ranks_after(const std::string& text, int count) {
  std::map<int, pid_t> found;
  const bool started = eventually(
      [&] {
        if (output().find(text) == std::string::npos) return is_gone(mpirun_);
        found = ranks_of(mpirun_);
        return static_cast<int>(found.size()) == count || is_gone(mpirun_);
      },
      kLimitSeconds);
  check(started && static_cast<int>(found.size()) == count, "the job did not start: ", output());
  for (const auto& [rank, pid] : found) ranks_.push_back(pid);
  return ranks_;
}

void Job::signal_launcher(int signal) { kill(mpirun_, signal); }

Finished Job::wait(int limit_seconds) {
  int status = 0;
  ended_ = eventually([&] { return waitpid(mpirun_, &status, WNOHANG) == mpirun_; }, limit_seconds);
  if (!ended_) return {124, output()};
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), output()};
}

}  // namespace flatshard::test
