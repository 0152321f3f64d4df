#pragma once
// Small correct kernels, and mutations of them with one error. The mutated line, or the line where the error
// becomes visible, ends in the comment "finds: NAME".

#include <functional>
#include <string>
#include <vector>

#include "ptx_vm/report.h"

namespace flatshard::ptx_vm {

struct Sample {
  std::string name;                         // name of the mutation, or of the correct kernel
  std::vector<FindingKind> finds{};         // any one of these is expected; empty: no finding
  std::function<std::vector<float>()> run;  // returns the results; empty if the launch failed
  // The correct variant to compare with, for a mutation that changes only results.
  std::function<std::vector<float>()> right = nullptr;
};

std::vector<Sample> correct_samples();
std::vector<Sample> broken_samples();
// Samples on tensor cores.
std::vector<Sample> correct_tensor_samples();
std::vector<Sample> broken_tensor_samples();
std::vector<Sample> correct_warpgroup_samples();
std::vector<Sample> broken_warpgroup_samples();
std::vector<float> expected_warpgroup_product();  // result of the first correct one
std::vector<float> expected_product();            // result of the first correct one
Sample product_without_swizzle();                 // correct results, but bank conflicts

// Samples with bulk copies, mbarriers and clusters, for sm_90a.
std::vector<Sample> correct_bulk_samples();
std::vector<Sample> broken_bulk_samples();

}  // namespace flatshard::ptx_vm
