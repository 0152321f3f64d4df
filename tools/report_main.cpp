// The program `report`.

#include <iostream>

#include "tools/report_program.h"

int main(int argc, char** argv) { return flatshard::report_main(argc, argv, std::cout, std::cerr); }
