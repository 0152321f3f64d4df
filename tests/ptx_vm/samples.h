#pragma once
// Small kernels that are right, and copies of them with one thing broken. The line that a mutation breaks, or
// where its harm shows, ends in the comment "finds: NAME" in samples.cu.

#include <functional>
#include <string>
#include <vector>

#include "tests/ptx_vm/report.h"

namespace flatshard::ptx_vm {

struct Sample {
  std::string name;                         // of the mutation, or of the kernel that is right
  std::vector<FindingKind> finds{};         // any one of these; empty where nothing is wrong
  std::function<std::vector<float>()> run;  // the results; empty where the launch failed
};

std::vector<Sample> correct_samples();
std::vector<Sample> broken_samples();

}  // namespace flatshard::ptx_vm
