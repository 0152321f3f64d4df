#pragma once
// Upper bounds of a kernel's speed. For each unit of a multiprocessor: the clocks that the counted work of a
// thread block takes if nothing else delays it. A diagnosis, not a prediction: published FlashAttention-3
// reaches 58 % of the tensor cores' peak where such bounds allow 80 %.

#include <array>
#include <string>

#include "ptx_vm/counts.h"

namespace flatshard::ptx_vm {

enum class Unit { tensor_cores, shared_memory, special_functions, issue, memory };
inline constexpr std::array kUnits{Unit::tensor_cores, Unit::shared_memory, Unit::special_functions,
                                   Unit::issue, Unit::memory};
std::string name_of(Unit unit);

// Rates of one multiprocessor of an H100 SXM, per clock.
//   tensor cores        989.4 TFLOP/s of bf16, 132 multiprocessors, 1.83 GHz: NVIDIA H100 Tensor Core GPU
//                       Architecture, 2022. mma reaches 0.62 of wgmma's rate: Luo et al., Benchmarking and
//                       Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking, 2024
//   shared memory       32 banks of 4 bytes; wgmma's operands in shared memory, and tensor copies, pass
//                       through them
//   special functions   16 results, and 4 warp instructions issued: CUDA C++ Programming Guide, throughput
//                       of native arithmetic instructions, compute capability 9.0. PTX instructions are
//                       counted, because SASS has about as many
//   memory              3.35 TB/s: the same architecture paper
struct HopperRates {
  static constexpr double kProcessors = 132, kHertz = 1.83e9;
  static constexpr double kFlops = 989.4e12 / (kProcessors * kHertz), kShareOfMma = 0.62;
  static constexpr double kSharedBytes = 128, kSpecial = 16, kIssued = 4,
                          kMemoryBytes = 3.35e12 / (kProcessors * kHertz);
};

struct Bound {
  std::array<double, kUnits.size()> clocks{};  // clocks of a block, by unit
  double flops = 0;                            // tensor core operations of a block

  Unit unit() const;  // the unit that takes the most clocks
  double least_clocks() const;
  double teraflops() const;  // rate of a full GPU that takes this long
};
// `memory_bytes`: bytes that all blocks of the launches touch.
Bound bound_of(const KernelCounts& kernel, double memory_bytes);

}  // namespace flatshard::ptx_vm
