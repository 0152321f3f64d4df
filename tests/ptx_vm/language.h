#pragma once
// What CUDA C++ offers beyond the samples, one kernel each, with the results that the host expects.

#include <string>
#include <vector>

namespace flatshard::ptx_vm {

struct LanguageCase {
  std::string name;
  std::vector<float> results, expected;
  float tolerance = 0.0f;  // relative
};
std::vector<LanguageCase> run_language_cases();

void run_printing();
void run_failing_assertion();
void run_failing_function();

}  // namespace flatshard::ptx_vm
