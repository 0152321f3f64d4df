// The scripts that time other systems, without those systems.

#include "source_dir.h"
#include "tests/process.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::test;

TEST_CASE(
    "the peer script for llm.c builds a program, leaves its warm-up out and ends it after the last step") {
  if (run_command("command -v make stdbuf").exit_code != 0) return skip("there is no make or no stdbuf");
  const Finished finished = run_command(str("'", kSourceDir, "/bench/peers/llm_c_step.sh' --self-test"), 30);
  CHECK_MESSAGE(finished.exit_code == 0, finished.output);
}
