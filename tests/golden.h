#pragma once
// Golden values: small safetensors files under tests/golden, made by tests/golden/make.py with an independent
// framework. Tensor names in a file are argument names of a case, so one call checks a case against a file.

#include <map>
#include <string>
#include <vector>

#include "bench/case.h"

namespace flatshard::test {

struct GoldenTensor {
  std::string dtype;  // as the file spells it: F32, BF16, F16, I32, U8
  std::vector<int64_t> shape;
  std::vector<double> values;
};

// The tensors of tests/golden/NAME.safetensors.
std::map<std::string, GoldenTensor> load_golden(const std::string& name);

// Gives the case the file's tensors as arguments, runs it, and returns the largest error of the outputs the
// file has (see bench::max_error). A file that lacks an input or has no output of the case is an Error.
double golden_error(const bench::Case& c, const std::string& name);

}  // namespace flatshard::test
