#include "train/config/trace_steps.h"

#include "tests/test.h"

using namespace flatshard;

TEST_CASE("run.trace is off, the first steps, or a window") {
  CHECK_FALSE(parse_trace_steps("false"));
  CHECK_FALSE(parse_trace_steps("true")->first);
  CHECK(parse_trace_steps("true")->count == TraceSteps::kDefaultCount);
  CHECK(parse_trace_steps("100:110")->first == 100);
  CHECK(parse_trace_steps("100:110")->count == 11);
  CHECK(parse_trace_steps("1:1")->count == 1);
}

TEST_CASE("a window that is none is an error that shows how to write one") {
  for (const std::string text : {"", "yes", "5", "5:", ":5", "0:5", "7:6", "1:2:3", "1: 2", "-1:2", "1:2x"})
    CHECK(test::error_of([&] { parse_trace_steps(text); }) ==
          "run.trace is \"" + text +
              "\", must be true, false, or the first and last step to trace, such as \"100:110\"");
}
