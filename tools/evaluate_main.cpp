// The program `evaluate`; see evaluate --help.

#include <iostream>

#include "runtime/illegal_instruction.h"
#include "tools/evaluate_program.h"

int main(int argc, char** argv) {
  flatshard::explain_illegal_instructions("evaluate");
  return flatshard::run_evaluate(argc, argv, std::cout, std::cerr);
}
