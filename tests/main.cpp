// The main function of the test programs. By itself a program runs its test cases one after the other:
//   flatshard_tests [NAME] [--keep] [doctest options]
// NAME selects test cases whose names contain it, or else those of files whose paths do; --keep keeps the
// files that the tests write and prints their folder. The last line counts the test cases: "N passed, N
// failed, N skipped". ./test starts the programs through test_runner.cpp, which calls them as
//   flatshard_tests --cases            prints a line for each test case: its file, a tab and its name
//   flatshard_tests --worker=IN,OUT    runs a test case for each line that arrives at the descriptor IN, its
//                                      index in that list, and answers each with a line at OUT: passed,
//                                      failed or skipped, a tab, the seconds of processor time that it took
//                                      here and in processes, a tab, and the reason of a skip

#define DOCTEST_CONFIG_IMPLEMENT
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <iostream>
#include <string>
#include <sys/resource.h>
#include <unistd.h>
#include <vector>

#include "runtime/standard_streams.h"
#include "tests/test.h"

namespace flatshard::test {
namespace {

struct Counts {
  int passed = 0, failed = 0;
  std::vector<std::string> skipped;
  std::string running, reason;
} counts;

std::string (*problem_at_end)() = [] { return std::string(); };

// The path of a test case's file in this repository.
std::string file_of(const doctest::TestCaseData& test) {
  const std::string path = test.m_file.c_str();
  const size_t at = std::min(path.rfind("/ptx_vm/tests/"), path.rfind("/tests/"));
  return at == path.npos ? path : path.substr(at + 1);
}

// Counts test cases as they end, and lists them where that is asked for.
struct Counter : doctest::IReporter {
  explicit Counter(const doctest::ContextOptions&) {}
  void test_case_start(const doctest::TestCaseData& data) override {
    counts.running = data.m_name;
    counts.reason.clear();
  }
  void test_case_end(const doctest::CurrentTestCaseStats& stats) override {
    const std::string problem = problem_at_end();
    if (!stats.failure_flags && !problem.empty())
      std::cout << "FAILED: " << counts.running << ": " << problem << '\n';
    if (stats.failure_flags || !problem.empty())
      ++counts.failed;
    else if (!counts.reason.empty())
      counts.skipped.push_back(counts.running + ": " + counts.reason);
    else
      ++counts.passed;
  }
  void report_query(const doctest::QueryData& query) override {
    for (unsigned i = 0; i < query.num_data; ++i)
      std::cout << file_of(*query.data[i]) << '\t' << query.data[i]->m_name << '\n';
  }
  void test_run_start() override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};

// The working folder of the tests; removed afterwards unless it is kept.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(bool kept) : kept_(kept), before_(std::filesystem::current_path()) {
    std::string path = (std::filesystem::temp_directory_path() / "flatshard-tests-XXXXXX").string();
    check(mkdtemp(path.data()) != nullptr, "cannot make a temporary folder ", path);
    std::filesystem::current_path(path);
    path_ = path;
    if (kept_) std::cout << "kept in " << path << '\n';
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
    if (!kept_) std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

 private:
  bool kept_;
  std::filesystem::path before_, path_;
};

// What matches names with `words` in them; doctest takes a comma for the end of a filter.
std::string filter_for(const std::string& words) {
  std::string filter = "*";
  for (const char c : words) (c == ',' || c == '\\' ? filter += '\\' : filter) += c;
  return filter + "*";
}

REGISTER_LISTENER("counter", 1, Counter);

double processor_seconds() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    for (const timeval& t : {usage.ru_utime, usage.ru_stime})
      seconds += static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  }
  return seconds;
}

// Runs the test cases whose indices arrive at `commands`, until it is closed.
void work(doctest::Context& context, int commands, int results) {
  for (const int descriptor : {commands, results}) fcntl(descriptor, F_SETFD, FD_CLOEXEC);
  std::FILE* const lines = fdopen(commands, "r");
  for (int index; std::fscanf(lines, "%d", &index) == 1;) {
    const double before = processor_seconds();
    counts = {};
    context.setOption("first", index + 1);
    context.setOption("last", index + 1);
    context.run();
    std::cout << std::flush;
    std::string answer = counts.passed > 0 ? "passed" : counts.skipped.empty() ? "failed" : "skipped";
    answer += str('\t', processor_seconds() - before, '\t', counts.reason, '\n');
    if (write(results, answer.data(), answer.size()) < 0) break;
  }
  std::fclose(lines);
}

}  // namespace

void skip(const std::string& reason) { counts.reason = reason; }

std::string missing_from(const std::string& text, std::initializer_list<std::string> parts) {
  size_t at = 0;
  for (const std::string& part : parts) {
    at = text.find(part, at);
    if (at == text.npos) return str('"', part, "\" is not in: ", text.empty() ? "(no message)" : text);
    at += part.size();
  }
  return "";
}

void at_end_of_tests(std::string (*problem)()) { problem_at_end = problem; }

}  // namespace flatshard::test

int main(int argc, char** argv) {
  using namespace flatshard::test;
  flatshard::reserve_standard_streams();
  std::signal(SIGCHLD, SIG_DFL);  // if it is ignored, processes cannot be waited for
  doctest::Context context;
  // doctest combines filters with "and", so test cases are searched first, then files.
  std::vector<const char*> options{argv[0]};
  std::string name;
  bool keep = false;
  int commands = -1, results = -1;
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == std::string("--keep"))
      keep = true;
    else if (argv[i] == std::string("--cases"))
      for (const char* option : {"--list-test-cases", "--reporters=none"}) options.push_back(option);
    else if (std::sscanf(argv[i], "--worker=%d,%d", &commands, &results) == 2)
      continue;
    else if (argv[i][0] == '-')
      options.push_back(argv[i]);
    else
      name = argv[i];
  }
  const TemporaryFolder folder(keep);
  context.setOption("no-intro", true);
  context.applyCommandLine(static_cast<int>(options.size()), options.data());
  if (commands >= 0) {
    context.setOption("minimal", true);
    work(context, commands, results);
    return 0;
  }
  if (!name.empty()) context.addFilter("test-case", filter_for(name).c_str());
  int result = context.run();
  if (!name.empty() && !context.shouldExit() && counts.passed + counts.failed == 0 &&
      counts.skipped.empty()) {
    context.clearFilters();
    context.addFilter("source-file", filter_for(name).c_str());
    result = context.run();
  }
  if (context.shouldExit()) return result;
  for (const std::string& skipped : counts.skipped) std::cout << "skipped: " << skipped << '\n';
  if (counts.passed + counts.failed == 0 && counts.skipped.empty()) {
    std::cout << "no test matches\n";
    return 1;
  }
  std::cout << counts.passed << " passed, " << counts.failed << " failed, " << counts.skipped.size()
            << " skipped\n";
  return result == 0 && counts.failed > 0 ? 1 : result;
}
