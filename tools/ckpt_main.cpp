// The program `ckpt`.

#include <iostream>

#include "runtime/illegal_instruction.h"
#include "tools/ckpt/ckpt_program.h"

int main(int argc, char** argv) {
  flatshard::explain_illegal_instructions("ckpt");
  return flatshard::ckpt_main(argc, argv, std::cout, std::cerr);
}
