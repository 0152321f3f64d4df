// Runs the tests. flatshard_tests [NAME] [--keep] [doctest options]: NAME selects test cases and source files
// that contain it; the exit status is 3 if there are none; --keep keeps the files that the tests write and
// prints their folder. The last line counts the test cases: "N passed, N failed, N skipped".

#define DOCTEST_CONFIG_IMPLEMENT
#include <csignal>
#include <filesystem>
#include <iostream>
#include <string>
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

// Counts test cases as they end.
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
  void report_query(const doctest::QueryData&) override {}
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

}  // namespace

constexpr int kNoTestMatches = 3;  // ./test then tries another program

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
  for (int i = 1; i < argc; ++i) {
    if (argv[i] == std::string("--keep"))
      keep = true;
    else if (argv[i][0] == '-')
      options.push_back(argv[i]);
    else
      name = argv[i];
  }
  const TemporaryFolder folder(keep);
  context.setOption("no-intro", true);
  context.applyCommandLine(static_cast<int>(options.size()), options.data());
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
    return kNoTestMatches;
  }
  std::cout << counts.passed << " passed, " << counts.failed << " failed, " << counts.skipped.size()
            << " skipped\n";
  return result == 0 && counts.failed > 0 ? 1 : result;
}
