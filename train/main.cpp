// The program `train`.

#include <iostream>

#include "train/main_program.h"

int main(int argc, char** argv) { return flatshard::train_main(argc, argv, std::cout, std::cerr); }
