#pragma once
// Golden values: small safetensors files under tests/golden, made by tests/golden/make.py with an independent
// framework. Tensor names in a file are argument names of a case, so one call checks a case against a file.

#include <map>
#include <string>
#include <vector>

#include "bench/case.h"

namespace flatshard::test {

struct GoldenTensor {
  std::string dtype;  // name in the file: F32, BF16, F16, I32, U8
  std::vector<int64_t> shape;
  std::vector<double> values;
};

// The tensors of tests/golden/NAME.safetensors.
std::map<std::string, GoldenTensor> load_golden(const std::string& name);

// The name in golden/folders of the base of golden/adapters/NAME.
std::string base_of_adapter(const std::string& name);

// Runs the case with the file's tensors as arguments, and returns the largest error of the outputs that the
// file has (see bench::max_error). A missing input, or a file without outputs, is an Error.
double golden_error(const bench::Case& c, const std::string& name);

}  // namespace flatshard::test
