// The program `generate`; see generate --help.

#include <iostream>

#include "train/tools/generate_program.h"

int main(int argc, char** argv) {
  return flatshard::run_generate(argc, argv, {std::cin, std::cout, std::cerr});
}
