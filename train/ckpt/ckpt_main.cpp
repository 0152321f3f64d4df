// The program `ckpt`.

#include <iostream>

#include "train/ckpt/ckpt_program.h"

int main(int argc, char** argv) { return flatshard::ckpt_main(argc, argv, std::cout, std::cerr); }
