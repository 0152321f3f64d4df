// test_runner on programs that are shell scripts.

#include "tests/test.h"

#include <filesystem>
#include <fstream>

#include "runtime/whole_file.h"
#include "tests/process.h"

using namespace flatshard;

namespace {

constexpr int64_t kMostBytes = 1 << 20;

// A program whose test cases are functions of a shell.
void write_program(const std::string& path, const std::string& names, const std::string& tests) {
  std::ofstream(path) << "#!/bin/bash\nnames=(" << names << ")\n"
                      << tests << R"sh(
if [ "$1" = --cases ]; then
  for name in "${names[@]}"; do printf 'tests/a_test.cpp\t%s\n' "$name"; done
  exit
fi
in=${1#--worker=} out=${1##*,}
while read -r index <&"${in%,*}"; do
  printf '%s\n' "$(${names[index]} 3>&1 >&2)" >&"$out"
done
)sh";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
}

test::Finished run(const std::string& options) {
  return test::run_command(
      str("@test_runner --times runner/times --log runner/log ", options, " runner/program"));
}

}  // namespace

TEST_CASE("test_runner shows what failed, and counts what passed and what was not run, with the reason") {
  std::filesystem::create_directory("runner");
  write_program("runner/program", "good bad absent", R"(
good() { echo noise; printf 'passed\t0.5\t' >&3; }
bad() { echo "1 is not 2"; printf 'failed\t0\t' >&3; }
absent() { printf 'skipped\t0\tthere is no GPU' >&3; }
)");
  const test::Finished all = run("");
  CAPTURE(all.output);
  CHECK(all.exit_code == 1);
  CHECK(test::missing_from(all.output, {"3 tests, ", "FAILED  tests/a_test.cpp: bad\n1 is not 2"}) == "");
  CHECK(test::missing_from(all.output, {"slowest", "0.5 s  tests/a_test.cpp: good"}) == "");
  CHECK(test::missing_from(all.output, {"not run: there is no GPU\n  tests/a_test.cpp: absent",
                                        "1 passed, 1 failed, 1 skipped in "}) == "");
  CHECK(all.output.find("noise") == std::string::npos);
  CHECK(read_whole_file("runner/log", kMostBytes).find("noise") != std::string::npos);
  // The times of the last run tell how long the next one takes.
  CHECK(read_whole_file("runner/times", kMostBytes).find("\ttests/a_test.cpp: good\n") != std::string::npos);
  CHECK(test::missing_from(run("").output, {"3 tests, ", " at a time, about 0:0"}) == "");

  const test::Finished one = run("--name goo");
  CHECK_MESSAGE(one.exit_code == 0, one.output);
  CHECK_MESSAGE(one.output.find("1 passed, 0 failed, 0 skipped") != std::string::npos, one.output);
  CHECK(run("--name a_test").output.find("3 tests") != std::string::npos);
  const test::Finished none = run("--name other");
  CHECK(none.exit_code == 1);
  CHECK_MESSAGE(none.output.find("no test matches \"other\"") != std::string::npos, none.output);
}

TEST_CASE("a test case that ends its program fails, and the others are run") {
  std::filesystem::create_directory("runner");
  write_program("runner/program", "killed left good better", R"(
killed() { echo "before the end"; kill -SEGV $$; }
left() { kill -KILL $$; }
good() { printf 'passed\t0\t' >&3; }
better() { printf 'passed\t0\t' >&3; }
)");
  const test::Finished all = run("");
  CAPTURE(all.output);
  CHECK(all.exit_code == 1);
  CHECK(test::missing_from(
            all.output, {"FAILED  tests/a_test.cpp: killed\nbefore the end\n", "ended by signal 11"}) == "");
  CHECK(test::missing_from(all.output, {"FAILED  tests/a_test.cpp: left\n", "ended by signal 9"}) == "");
  CHECK(all.output.find("2 passed, 2 failed, 0 skipped") != std::string::npos);
}

TEST_CASE("a test case that a program does not have fails") {
  const test::Finished asked = test::run_command("echo 1000000 | @flatshard_tests --worker=0,1");
  CHECK_MESSAGE(asked.output.find("failed\t") != std::string::npos, asked.output);
  CHECK(asked.output.find("passed\t") == std::string::npos);
}
