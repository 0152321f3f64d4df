// Self-tests of the scripts that time other systems.

#include "source_dir.h"
#include "tests/process.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::test;

TEST_CASE("llm_c_step.sh builds a program, skips its warm-up and ends it after the last step") {
  if (run_command("command -v make stdbuf").exit_code != 0) return skip("make or stdbuf is missing");
  const Finished finished = run_command(str("'", kSourceDir, "/bench/peers/llm_c_step.sh' --self-test"), 30);
  CHECK_MESSAGE(finished.exit_code == 0, finished.output);
}
