#include "ptx_vm/bounds.h"

#include <algorithm>
#include <set>

namespace flatshard::ptx_vm {
namespace {

bool is_special(std::string_view opcode) {
  static const std::set<std::string_view> names{"ex2", "lg2", "rcp", "rsqrt", "sqrt", "sin", "cos", "tanh"};
  return names.contains(opcode.substr(0, opcode.find('.'))) && !opcode.ends_with("f64");
}

// Bytes of shared memory that a warp's share of a wgmma reads: its rows of A unless they are in registers, a
// quarter of B.
double product_bytes(const Instruction& product, double flops) {
  const double columns = flops / (2.0 * 16 * 16);
  return (product.operands[1].kind == Operand::Kind::list ? 0.0 : 16 * 16 * 2.0) + columns * 16 * 2 / 4;
}

}  // namespace

std::string name_of(Unit unit) {
  static constexpr const char* kNames[] = {"tensor cores", "shared memory", "special functions", "issue",
                                           "memory"};
  return kNames[static_cast<size_t>(unit)];
}

Unit Bound::unit() const {
  return kUnits[static_cast<size_t>(std::max_element(clocks.begin(), clocks.end()) - clocks.begin())];
}
double Bound::least_clocks() const { return *std::max_element(clocks.begin(), clocks.end()); }
double Bound::teraflops() const {
  return flops / least_clocks() * HopperRates::kProcessors * HopperRates::kHertz * 1e-12;
}

Bound bound_of(const KernelCounts& kernel, double memory_bytes) {
  using Rates = HopperRates;
  constexpr double kLanesOfWarp = 32;
  double tensor = 0, shared = 0, special = 0;
  Bound bound;
  for (size_t i = 0; i < kernel.ops.size(); ++i) {
    const Instruction& instruction = *kernel.kernel->instructions[i];
    const auto executed = static_cast<double>(kernel.ops[i].executed);
    shared += static_cast<double>(kernel.ops[i].waves);
    if (is_special(instruction.opcode)) special += executed * kLanesOfWarp / Rates::kSpecial;
    const double flops = tensor_flops(instruction.opcode);
    const bool is_wgmma = instruction.opcode.starts_with("wgmma");
    bound.flops += executed * flops;
    tensor += executed * flops / (Rates::kFlops * (is_wgmma ? 1 : Rates::kShareOfMma));
    if (is_wgmma && flops > 0) shared += executed * product_bytes(instruction, flops) / Rates::kSharedBytes;
  }
  const auto blocks = static_cast<double>(std::max<uint64_t>(kernel.blocks, 1));
  bound.clocks = {tensor, shared, special, static_cast<double>(kernel.executed()) / Rates::kIssued,
                  memory_bytes / Rates::kMemoryBytes};
  for (double& clocks : bound.clocks) clocks /= blocks;
  bound.flops /= blocks;
  return bound;
}

}  // namespace flatshard::ptx_vm
