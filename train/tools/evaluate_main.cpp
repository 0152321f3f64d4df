// The program `evaluate`; see evaluate --help.

#include <iostream>

#include "train/tools/evaluate_program.h"

int main(int argc, char** argv) { return flatshard::run_evaluate(argc, argv, std::cout, std::cerr); }
