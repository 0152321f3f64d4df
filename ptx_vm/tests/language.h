#pragma once
// CUDA C++ features that the samples do not use, one kernel each, with the expected results.

#include <string>
#include <vector>

namespace flatshard::ptx_vm {

struct LanguageCase {
  std::string name;
  std::vector<float> results, expected;
  float tolerance = 0.0f;  // relative tolerance
};
std::vector<LanguageCase> run_language_cases();

// Runs a kernel whose blocks wait for one another. Returns the cudaError_t of the launch and the
// synchronization.
int run_grid_barrier(int blocks, bool is_cooperative, std::vector<int>* seen);
// The stub of a kernel with 100 bytes of static shared memory and at most 256 threads in a block.
const void* stub_of_bounded();

void run_printing();
void run_failing_assertion();
void run_failing_function();

}  // namespace flatshard::ptx_vm
