// The program `generate`; see generate --help.

#include <iostream>

#include "runtime/illegal_instruction.h"
#include "tools/generate_program.h"

int main(int argc, char** argv) {
  flatshard::explain_illegal_instructions("generate");
  return flatshard::run_generate(argc, argv, {std::cin, std::cout, std::cerr});
}
