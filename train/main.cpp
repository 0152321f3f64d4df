// The program `train`.

#include <iostream>

#include "runtime/illegal_instruction.h"
#include "train/run/main_program.h"

int main(int argc, char** argv) {
  flatshard::explain_illegal_instructions("train");
  return flatshard::train_main(argc, argv, std::cout, std::cerr);
}
