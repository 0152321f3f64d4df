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

TEST_CASE("a report has a line for each problem, up to a thousand") {
  const auto report_with = [](int count) {
    Problems problems;
    for (int i = 1; i <= count; ++i) problems.add(str("problem\n", i));
    try {
      problems.raise();
    } catch (const Error& error) {
      return report_of(error);
    }
    return std::string();
  };
  const std::string report = report_with(49);
  CHECK(report.starts_with("49 problems:\n  problem 1\n  problem 2\n"));
  CHECK(report.ends_with("\n  problem 48\n  problem 49"));
  CHECK(report_with(1003).ends_with("\n  problem 1000\n  and 3 more"));
}

TEST_CASE("a similar word has most letters in common") {
  const std::vector<std::string> words{"inspect", "verify", "diff", "merge"};
  CHECK(similar_word("inspct", words) == "inspect");
  CHECK(similar_word("dif", words) == "diff");
  CHECK(similar_word("explain", words).empty());
  CHECK(similar_word("", words).empty());
}

TEST_CASE(
    "a misspelling differs in a third of the word at most, and a swap of neighbours is one difference") {
  CHECK(misspelling("stesp", "steps") == 1);
  CHECK(misspelling("optimiser", "optimizer") == 1);
  CHECK(misspelling("stps", "steps") == 1);
  CHECK(misspelling("lr", "lr") == 0);
  CHECK_FALSE(misspelling("beta", "seed").has_value());
  CHECK_FALSE(misspelling("wandb", "rank").has_value());
  CHECK_FALSE(misspelling("eps", "foo").has_value());
  CHECK_FALSE(misspelling("", "a").has_value());
  CHECK_FALSE(misspelling(std::string(100'000'000, 'x'), "steps").has_value());  // without a search
}
