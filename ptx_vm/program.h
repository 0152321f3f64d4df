#pragma once
// A decoded kernel: each instruction is a handler and the slots of its operands. A virtual register is an
// array with one element per lane in the warp's register file; a predicate is a mask with one bit per lane.
// Literals and special registers are arrays too, filled before the warp starts, so that handlers read all
// operands in the same way.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx_vm/expand.h"
#include "ptx_vm/syntax.h"

namespace flatshard::ptx_vm {

struct Warp;
struct Op;
using Handler = void (*)(Warp& warp, const Op& op);

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;
inline constexpr uint32_t kNowhere = 0xffffffffu;  // a slot that does not exist

enum class Space : uint8_t { generic, global, shared, cluster, local, param };  // cluster: shared::cluster

// The control flow that the warp's loop handles.
enum class Flow : uint8_t {
  next,          // run the handler and continue
  branch,        // go to `immediate`
  branch_table,  // go to the target that slot[0] selects from the table `immediate`
  exit,          // the lanes end
  with_others,   // run the handler when all lanes of its mask have arrived
  whole_warp,    // run the handler when all 32 lanes have arrived
  barrier,       // a block barrier: the handler arrives
  poll,          // run the handler; let other warps run if it sets Warp::polls
};

struct Op {
  Handler run = nullptr;
  int64_t immediate = 0;
  std::array<uint32_t, 6> slot{};  // byte offsets into the register file: results, then operands
  uint32_t guard = kNowhere;       // slot of a predicate
  bool guard_negated = false;
  Flow flow = Flow::next;
  uint8_t count = 0;         // elements of a vector, operands of a barrier
  bool wide_address = true;  // the address register has 64 bits
  Space space = Space::generic;
  bool acquires = false, releases = false;
  bool touches_product = false;  // uses registers that wgmma uses, too
  bool is_strong = false;        // volatile, relaxed, acquire, release: not a race with an atomic access
  uint32_t index = 0;            // index of this op in the kernel
};

enum class Special : uint8_t {
  tid_x,
  tid_y,
  tid_z,
  ntid_x,
  ntid_y,
  ntid_z,
  ctaid_x,
  ctaid_y,
  ctaid_z,
  nctaid_x,
  nctaid_y,
  nctaid_z,
  laneid,
  warpid,
  nwarpid,
  lanemask_eq,
  lanemask_lt,
  lanemask_le,
  lanemask_gt,
  lanemask_ge,
  smid,
  nsmid,
  dynamic_smem_size,
  total_smem_size,
  cluster_ctaid_x,
  cluster_ctaid_y,
  cluster_ctaid_z,
  cluster_nctaid_x,
  cluster_nctaid_y,
  cluster_nctaid_z,
  cluster_ctarank,
  cluster_nctarank,
  clusterid_x,
  clusterid_y,
  clusterid_z,
  nclusterid_x,
  nclusterid_y,
  nclusterid_z,
  is_explicit_cluster,
};

std::optional<Special> special_named(std::string_view name);  // parses a name such as "%tid.x"

struct Literal {
  uint32_t slot, bytes;  // bytes per lane
  uint64_t bits;
};

struct Parameter {
  uint32_t offset, bytes;
};

// A product of a warpgroup, wgmma.mma_async: D (64, columns) = A (64, 16) B (16, columns) + D.
struct ProductForm {
  std::vector<uint32_t> d{}, a{};  // slots; `a` is empty if a descriptor locates A
  bool is_half = false;            // elements are f16, not bf16
  bool transposed_a = false, transposed_b = false;
  float sign = 1.0f;  // sign of the product
  uint32_t columns() const { return static_cast<uint32_t>(d.size()) * 2; }
};

struct Kernel {
  const Module* module = nullptr;
  uint64_t number = 0;  // never used again, unlike the address of a kernel
  std::string name;     // demangled
  std::vector<Op> code;
  std::vector<const Instruction*> instructions;  // indexed by op
  std::unique_ptr<ExpandedFunction> expanded;    // owns the instructions if calls were expanded
  std::vector<Literal> literals;
  std::vector<std::pair<uint32_t, uint32_t>> predicate_literals;  // slot, mask
  std::vector<std::pair<uint32_t, Special>> specials;
  std::vector<std::vector<uint32_t>> branch_tables;
  std::vector<uint32_t> slot_lists;  // operands of ops with more operands than slots
  bool uses_warpgroups = false;
  std::vector<ProductForm> products;
  std::unordered_map<uint32_t, std::vector<uint32_t>> product_registers;  // wgmma registers used by other ops
  std::vector<Parameter> parameters;
  std::vector<std::pair<uint32_t, uint32_t>> shared_gaps;  // [begin, end) between static variables
  uint32_t register_bytes = 0, parameter_bytes = 0, static_shared_bytes = 0, local_bytes = 0;
  uint32_t dynamic_shared_align = 16;
  uint32_t shared_shift = 0;          // unused bytes before dynamic shared memory
  uint32_t max_threads = 0;           // threads per block; 0: not declared
  std::array<uint32_t, 3> cluster{};  // blocks per cluster; zeros: not declared
  uint32_t blocks_per_processor = 0;  // .minnctapersm; 0: not declared

  uint32_t declared_shared_bytes() const { return static_shared_bytes - shared_shift; }
  std::string where(uint32_t op) const {
    std::string text;
    for (const Instruction* i = instructions[op]; i; i = i->caller)
      text += (text.empty() ? "" : ", called at ") + describe_location(*module, i->location, i->line);
    return text;
  }
};

std::string demangled(std::string_view name);

// The addresses of the variables of a module, by name.
class Symbols;

// Decodes one entry of a module. Dynamic shared memory is shifted by `shared_shift` bytes from its alignment.
// An Error names the line of an unknown instruction.
std::unique_ptr<Kernel> decode(const Module& module, const Function& function, const Symbols& symbols,
                               uint32_t shared_shift);

}  // namespace flatshard::ptx_vm
