// Runs the test cases of several programs, on all processors, and says what came out:
//   test_runner [--times FILE] [--log FILE] [--name NAME] PROGRAM...
// NAME selects the test cases whose names contain it, or else those of files whose paths do. FILE of --times
// has the seconds that each test case took the last time: long ones begin first, and the whole time is
// estimated. It is written again at the end. What passing tests print goes to the file of --log; the output
// of a failing one is shown at once. A test case that crashes fails, and a new process runs those after it.
// The exit code is 0 if no test failed, and 1 otherwise, or if no name matches.
//
// Each program is one of main.cpp, which says how they are asked for their test cases and to run them.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <iostream>
#include <map>
#include <memory>
#include <optional>
#include <poll.h>
#include <sstream>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "runtime/check.h"
#include "runtime/parallel.h"
#include "runtime/terminal_line.h"
#include "runtime/text.h"

namespace flatshard::test {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

constexpr double kUsualSeconds = 0.2;   // of a test case without a recorded time
constexpr double kSecondsOfALine = 10;  // between lines of progress, where they are not rewritten
constexpr double kSecondsOfATerminal = 0.25;
constexpr size_t kSlowest = 10;

struct TestCase {
  std::string program;
  size_t index;  // among the test cases of the program
  std::string file, name;
  double expected = kUsualSeconds;

  std::string title() const { return str(file, ": ", name); }
};

struct Outcome {
  const TestCase* test;
  std::string result;  // "passed", "failed", "skipped"
  double seconds, processor_seconds;
  std::string reason;  // why it was skipped
};

struct Options {
  std::string times, log, name;
  std::vector<std::string> programs;
};

Options read_options(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    std::string* const value = word == "--times"  ? &o.times
                               : word == "--log"  ? &o.log
                               : word == "--name" ? &o.name
                                                  : nullptr;
    check(!value || i + 1 < argc, word, ": its value is missing");
    if (value)
      *value = argv[++i];
    else
      o.programs.push_back(word);
  }
  check(!o.programs.empty(), "test_runner [--times FILE] [--log FILE] [--name NAME] PROGRAM...");
  return o;
}

// A line "FILE <tab> NAME" for each test case.
std::vector<TestCase> cases_of(const std::string& program) {
  std::FILE* const pipe = popen(str("'", program, "' --cases").c_str(), "r");
  check(pipe != nullptr, "cannot start ", program);
  std::string text;
  char block[4096];
  for (size_t n; (n = std::fread(block, 1, sizeof block, pipe)) > 0;) text.append(block, n);
  check(pclose(pipe) == 0, program, " --cases failed");
  std::vector<TestCase> cases;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (const size_t tab = line.find('\t'); tab != line.npos)
      cases.push_back({.program = program,
                       .index = cases.size(),
                       .file = line.substr(0, tab),
                       .name = line.substr(tab + 1)});
  return cases;
}

void select(std::vector<TestCase>& cases, const std::string& name) {
  for (const auto member : {&TestCase::name, &TestCase::file}) {
    const auto lacks = [&](const TestCase& test) { return (test.*member).find(name) == std::string::npos; };
    if (std::all_of(cases.begin(), cases.end(), lacks)) continue;
    std::erase_if(cases, lacks);
    return;
  }
  cases.clear();
}

// Seconds by title.
std::map<std::string, double> read_times(const std::string& path) {
  std::map<std::string, double> times;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);)
    if (const size_t tab = line.find('\t'); tab != line.npos && line.front() != '#')
      times[line.substr(tab + 1)] = std::atof(line.c_str());
  return times;
}

void write_times(const std::string& path, std::map<std::string, double> times,
                 const std::vector<Outcome>& outcomes) {
  for (const Outcome& o : outcomes) times[o.test->title()] = o.seconds;
  std::ofstream out(path);
  for (const auto& [title, seconds] : times) out << fixed(seconds, 3) << '\t' << title << '\n';
}

// A process that runs test cases of a program, one at a time.
class Worker {
 public:
  explicit Worker(const std::string& program) : output_(std::tmpfile()) {
    check(output_ != nullptr, "cannot create a temporary file");
    int commands[2], results[2];
    check(pipe2(commands, O_CLOEXEC) == 0 && pipe2(results, O_CLOEXEC) == 0, "cannot create a pipe");
    process_ = fork();
    check(process_ >= 0, "cannot start ", program);
    if (process_ == 0) become(program, commands[0], results[1]);
    close(commands[0]);
    close(results[1]);
    commands_ = commands[1];
    results_ = results[0];
  }
  ~Worker() {
    close(commands_);  // which ends it
    close(results_);
    if (!ended_) waitpid(process_, nullptr, 0);
    std::fclose(output_);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  int results() const { return results_; }

  void begin(const TestCase& test) {
    check(ftruncate(fileno(output_), 0) == 0, "cannot empty a temporary file");
    const std::string line = str(test.index, '\n');
    [[maybe_unused]] const ssize_t written = write(commands_, line.data(), line.size());  // else it has ended
  }
  // What the program says about the test case, or "" if it has ended. Its last line may still be on its way.
  std::optional<std::string> answer() {
    char block[4096];
    const ssize_t n = read(results_, block, sizeof block);
    if (n > 0) answer_.append(block, static_cast<size_t>(n));
    if (n > 0 && answer_.back() != '\n') return std::nullopt;
    std::string line = std::move(answer_);
    answer_.clear();
    if (n > 0) return line.substr(0, line.size() - 1);
    waitpid(process_, &status_, 0);
    ended_ = true;
    return "";
  }
  std::string end() const {
    return WIFSIGNALED(status_) ? str("the program was ended by signal ", WTERMSIG(status_))
                                : str("the program ended with exit code ", WEXITSTATUS(status_));
  }
  // What has been printed since the beginning of the test case.
  std::string output() const {
    std::string text(static_cast<size_t>(std::max<off_t>(0, lseek(fileno(output_), 0, SEEK_END))), '\0');
    const ssize_t n = pread(fileno(output_), text.data(), text.size(), 0);
    text.resize(static_cast<size_t>(std::max<ssize_t>(0, n)));
    return text;
  }

 private:
  [[noreturn]] void become(const std::string& program, int commands, int results) const {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    std::signal(SIGPIPE, SIG_DFL);
    const int input = open("/dev/null", O_RDONLY), output = fileno(output_);
    fcntl(output, F_SETFL, O_APPEND);
    if (dup2(input, 0) == 0 && dup2(output, 1) == 1 && dup2(output, 2) == 2 &&
        fcntl(commands, F_SETFD, 0) == 0 && fcntl(results, F_SETFD, 0) == 0)
      execl(program.c_str(), program.c_str(), str("--worker=", commands, ',', results).c_str(), nullptr);
    _exit(127);
  }

  std::FILE* output_;
  pid_t process_;
  int commands_, results_;
  std::string answer_;
  bool ended_ = false;
  int status_ = 0;
};

// "passed", processor seconds and the reason of a skip, separated by tabs.
Outcome outcome_of(const TestCase& test, const std::string& answer, double seconds) {
  if (answer.empty()) return {&test, "failed", seconds, seconds, ""};
  const size_t first = answer.find('\t'), second = answer.find('\t', first + 1);
  return {&test, answer.substr(0, first), seconds, std::atof(answer.c_str() + first + 1),
          answer.substr(second + 1)};
}

// Works through the list, one test case at a time.
struct Runner {
  std::map<std::string, std::unique_ptr<Worker>> workers;  // by program
  const TestCase* test = nullptr;                          // the running one
  Clock::time_point since;

  Worker& worker() { return *workers.at(test->program); }
};

// Many tests start several ranks or threads, so each gets two of more than two processors.
int tests_at_once() {
  const int processors = usable_processors();
  return processors <= 2 ? processors : std::max(2, processors / 2);
}

class Run {
 public:
  Run(std::vector<TestCase> cases, const Options& options)
      : cases_(std::move(cases)),
        options_(options),
        runners_(std::min(cases_.size(), static_cast<size_t>(tests_at_once()))),
        is_terminal_(isatty(STDOUT_FILENO) != 0),
        line_(std::cout),
        log_(options.log) {}

  int run();

 private:
  void find_expected();
  void fill(Runner& runner);
  void take(Runner& runner, const std::string& answer);
  void show_progress();
  void report() const;

  std::vector<TestCase> cases_;
  const Options& options_;
  std::vector<Runner> runners_;
  bool is_terminal_;
  TerminalLine line_;
  std::ofstream log_;
  std::map<std::string, double> times_;
  std::optional<double> estimate_;  // seconds
  size_t next_ = 0;
  std::vector<Outcome> outcomes_;
  Clock::time_point begin_ = Clock::now(), shown_ = begin_;
};

// Sorts the test cases, so that the longest begin first.
void Run::find_expected() {
  times_ = read_times(options_.times);
  double all = 0, longest = 0;
  for (TestCase& test : cases_) {
    if (const auto known = times_.find(test.title()); known != times_.end()) test.expected = known->second;
    all += test.expected;
    longest = std::max(longest, test.expected);
  }
  if (!times_.empty()) estimate_ = std::max(longest, all / static_cast<double>(runners_.size()));
  std::stable_sort(cases_.begin(), cases_.end(),
                   [](const TestCase& a, const TestCase& b) { return a.expected > b.expected; });
}

void Run::fill(Runner& runner) {
  if (next_ == cases_.size()) return;
  runner.test = &cases_[next_++];
  runner.since = Clock::now();
  std::unique_ptr<Worker>& worker = runner.workers[runner.test->program];
  if (!worker) worker = std::make_unique<Worker>(runner.test->program);
  worker->begin(*runner.test);
}

void Run::take(Runner& runner, const std::string& answer) {
  const TestCase& test = *runner.test;
  const Outcome outcome = outcome_of(test, answer, seconds_since(runner.since));
  std::string output = runner.worker().output();
  if (answer.empty()) {
    output += str('\n', runner.worker().end(), '\n');
    runner.workers.at(test.program).reset();
  }
  if (outcome.result == "failed") {
    line_.finish();
    std::cout << "FAILED  " << test.title() << '\n' << output << std::endl;
  }
  log_ << outcome.result << "  " << test.title() << "  (" << fixed(outcome.seconds, 1) << " s)\n"
       << output << std::flush;
  outcomes_.push_back(outcome);
  runner.test = nullptr;
  fill(runner);
}

void Run::show_progress() {
  if (seconds_since(shown_) < (is_terminal_ ? kSecondsOfATerminal : kSecondsOfALine)) return;
  shown_ = Clock::now();
  std::string text = str(
      human_duration(seconds_since(begin_)), estimate_ ? str(" of about ", human_duration(*estimate_)) : "",
      ": ", with_commas(std::ssize(outcomes_)), " of ", with_commas(std::ssize(cases_)), " tests; now ");
  const char* separator = "";
  for (const Runner& runner : runners_)
    if (runner.test) {
      text += str(separator, runner.test->name, " (", fixed(seconds_since(runner.since), 0), " s)");
      separator = ", ";
    }
  if (is_terminal_)
    line_.show(text);
  else
    std::cout << text << std::endl;
}

// The slowest, what was not run and why, and the counts.
void Run::report() const {
  std::vector<const Outcome*> slowest;
  double processor_seconds = 0;
  std::map<std::string, int> counts;
  std::map<std::string, std::vector<const TestCase*>> skipped;  // by reason
  for (const Outcome& o : outcomes_) {
    slowest.push_back(&o);
    processor_seconds += o.processor_seconds;
    ++counts[o.result];
    if (o.result == "skipped") skipped[o.reason].push_back(o.test);
  }
  std::sort(slowest.begin(), slowest.end(),
            [](const Outcome* a, const Outcome* b) { return a->seconds > b->seconds; });
  if (slowest.size() > kSlowest) slowest.resize(kSlowest);
  if (slowest.size() > 1) std::cout << "slowest, with processor time:\n";
  for (const Outcome* o : slowest)
    if (slowest.size() > 1)
      std::cout << "  " << fixed(o->seconds, 1) << " s, " << fixed(o->processor_seconds, 1) << " s  "
                << o->test->title() << '\n';
  for (const auto& [reason, tests] : skipped) {
    std::cout << "not run: " << reason << '\n';
    for (const TestCase* test : tests) std::cout << "  " << test->title() << '\n';
  }
  std::cout << with_commas(counts["passed"]) << " passed, " << counts["failed"] << " failed, "
            << counts["skipped"] << " skipped in " << human_duration(seconds_since(begin_))
            << ", processor time " << human_duration(processor_seconds) << std::endl;
}

int Run::run() {
  find_expected();
  std::cout << counted(std::ssize(cases_), "test") << ", " << runners_.size() << " at a time";
  if (estimate_) std::cout << ", about " << human_duration(*estimate_);
  std::cout << std::endl;
  for (Runner& runner : runners_) fill(runner);
  while (outcomes_.size() < cases_.size()) {
    std::vector<pollfd> waiting;
    for (Runner& runner : runners_)
      waiting.push_back({.fd = runner.test ? runner.worker().results() : -1, .events = POLLIN, .revents = 0});
    poll(waiting.data(), waiting.size(), 100);
    for (size_t i = 0; i < runners_.size(); ++i)
      if (waiting[i].revents != 0)
        if (const auto answer = runners_[i].worker().answer()) take(runners_[i], *answer);
    show_progress();
  }
  line_.finish();
  runners_.clear();
  if (!options_.times.empty()) write_times(options_.times, times_, outcomes_);
  report();
  return std::any_of(outcomes_.begin(), outcomes_.end(),
                     [](const Outcome& o) { return o.result == "failed"; });
}

int run_tests(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a program that has ended is noticed where its answer is read
  const Options options = read_options(argc, argv);
  std::vector<TestCase> cases;
  for (const std::string& program : options.programs)
    for (TestCase& test : cases_of(program)) cases.push_back(std::move(test));
  select(cases, options.name);
  check(!cases.empty(), "no test matches \"", options.name, '"');
  return Run(std::move(cases), options).run();
}

}  // namespace
}  // namespace flatshard::test

int main(int argc, char** argv) try {
  return flatshard::test::run_tests(argc, argv);
} catch (const flatshard::Error& error) {
  std::cerr << "test_runner: " << error.what() << '\n';
  return 1;
}
