#pragma once
// Changes of single lines of a kernel's PTX. Each must be noticed: the machine has a finding, or the outputs
// of a case change.

#include <regex>
#include <string>
#include <vector>

#include "bench/case.h"

namespace flatshard::ptx_vm {

// A line that matches `pattern` becomes `with`.
struct Mutation {
  std::string name;
  std::regex pattern;
  std::string with;
  bool everywhere = false;  // in all places at once, because some of them change nothing
};

struct MutatedKernel {
  std::string demangled, mangled;  // parts of its name
};

// Runs the case with each mutation of the kernel, in up to `most_places` places, and checks that each is
// noticed. Returns how many there were.
int check_mutations(const MutatedKernel& kernel, const std::vector<Mutation>& mutations, const bench::Case& c,
                    size_t most_places);

}  // namespace flatshard::ptx_vm
