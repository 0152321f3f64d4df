#include "runtime/problems.h"

#include "runtime/reason.h"
#include "runtime/spelling.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("problems are collected in order, each once, and thrown together") {
  Problems problems;
  CHECK(problems.check(true, "no"));
  CHECK_FALSE(problems.check(1 > 2, "a is ", 1));
  CHECK_FALSE(problems.attempt([] { fail("b"); }));
  CHECK(problems.attempt([] {}));
  problems.check(false, "a is 1");
  Problems more;
  CHECK_FALSE(more.attempt([&] { problems.raise(); }));
  more.add("c");
  CHECK(more.texts() == std::vector<std::string>{"a is 1", "b", "c"});
  CHECK(test::error_of([&] { more.raise(); }) == "a is 1\nb\nc");
}

TEST_CASE("a single problem is an ordinary error, and none is no error") {
  Problems problems;
  problems.raise();
  problems.add("only this");
  try {
    problems.raise();
    CHECK(false);
  } catch (const Error& error) {
    CHECK(dynamic_cast<const Errors*>(&error) == nullptr);
    CHECK(report_of(error) == "only this");
  }
}

TEST_CASE("a report shows the first 20 problems, a line each, and the number of the others") {
  Problems problems;
  for (int i = 1; i <= 23; ++i) problems.add(str("problem\n", i));
  try {
    problems.raise();
  } catch (const Error& error) {
    const std::string report = report_of(error);
    CHECK(report.starts_with("23 problems:\n  problem 1\n  problem 2\n"));
    CHECK(report.ends_with("\n  problem 20\n  and 3 more"));
  }
}

TEST_CASE("a similar word has most letters in common") {
  const std::vector<std::string> words{"inspect", "verify", "diff", "merge"};
  CHECK(similar_word("inspct", words) == "inspect");
  CHECK(similar_word("dif", words) == "diff");
  CHECK(similar_word("explain", words).empty());
  CHECK(similar_word("", words).empty());
}
