// The program `prepare`; see prepare --help.

#include <iostream>
#include <unistd.h>

#include "train/tools/prepare.h"

int main(int argc, char** argv) {
  const bool progress = isatty(STDERR_FILENO) == 1;
  return flatshard::run_prepare(argc, argv,
                                {std::cin, std::cout, std::cerr, progress, isatty(STDOUT_FILENO) == 1});
}
