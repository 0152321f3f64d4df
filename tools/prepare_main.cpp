// The program `prepare`; see prepare --help.

#include <iostream>
#include <unistd.h>

#include "runtime/illegal_instruction.h"
#include "tools/prepare.h"

int main(int argc, char** argv) {
  flatshard::explain_illegal_instructions("prepare");
  const bool progress = isatty(STDERR_FILENO) == 1;
  return flatshard::run_prepare(argc, argv,
                                {std::cin, std::cout, std::cerr, progress, isatty(STDOUT_FILENO) == 1});
}
