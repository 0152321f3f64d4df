#pragma once
// Kernel costs that can be counted without a GPU: instructions by opcode, bytes moved, and the actual and the
// minimal numbers of memory sectors and shared-memory bank cycles of each access.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ptx_vm/access.h"
#include "ptx_vm/program.h"

namespace flatshard::ptx_vm {

struct Allocation;

// The costs of one instruction of a kernel, over all warps.
struct OpCounts {
  uint64_t executed = 0;
  uint64_t requests = 0;                    // accesses to global memory
  uint64_t sectors = 0, least_sectors = 0;  // sectors of 32 bytes
  uint64_t waves = 0, least_waves = 0;      // cycles of the 32 shared-memory banks
};

struct KernelCounts {
  const Kernel* kernel = nullptr;
  uint64_t launches = 0, blocks = 0;
  uint32_t shared_bytes = 0;  // shared memory of a block
  std::vector<OpCounts> ops;  // same order as Kernel::code

  uint64_t executed() const;
  std::map<std::string, uint64_t> by_opcode() const;
  double tensor_flops() const;  // operations of mma and wgmma
};

// The tensor core operations of one execution by a warp: of mma or wgmma.
double tensor_flops(std::string_view opcode);

// Launches add to options().counts unless it is null.
class Counts {
 public:
  KernelCounts& of(const Kernel& kernel);
  void begin_launch();
  // Adds a product of cuBLASLt, and the bytes of the matrices that it reads and writes.
  void add_product(uint64_t bytes) { ++products_, product_bytes_ += bytes; }
  // Adds a copy or a fill, which accesses `bytes` of device memory.
  void add_copy(uint64_t bytes) { ++copies_, copied_bytes_ += bytes; }
  // Adds an instruction: every active lane accesses `bytes` at base + offset.
  void add_access(KernelCounts& kernel, const Warp& warp, const Op& op, uint32_t base_slot, uint32_t bytes,
                  Access access);
  // Adds an access to contiguous global memory by asynchronous work.
  void add_piece(uint64_t address, uint64_t bytes, Access access);

  const std::vector<KernelCounts>& kernels() const { return kernels_; }
  OpCounts total() const;
  // The number of distinct bytes of global memory read, plus the number of distinct bytes written.
  uint64_t touched_bytes() const;
  uint64_t products() const { return products_; }
  uint64_t product_bytes() const { return product_bytes_; }
  uint64_t copies() const { return copies_; }  // includes fills
  // The number of launches of kernels, products, copies and fills.
  uint64_t launches() const;
  // The sum of touched_bytes() of each launch by itself, and the bytes of copies and fills. Excludes
  // products: see product_bytes().
  uint64_t launch_bytes() const;
  // The number of bytes read and written by all lanes, counting repeated accesses.
  uint64_t requested_bytes() const { return requested_bytes_; }

 private:
  void add_global(OpCounts& counts, const std::vector<uint64_t>& addresses, uint32_t bytes, Access access);
  static void add_shared(OpCounts& counts, const std::vector<uint64_t>& addresses,
                         const std::vector<int>& lanes, uint32_t bytes);

  std::vector<KernelCounts> kernels_;
  std::unordered_map<const Kernel*, size_t> index_;
  using Touched = std::map<uint64_t, std::vector<unsigned char>>;  // keyed by address of a 4 KiB page
  static uint64_t bytes_of(const Touched& touched);

  Touched touched_, touched_in_launch_;  // bit 0: read, bit 1: written
  uint64_t requested_bytes_ = 0, launch_bytes_ = 0, products_ = 0, product_bytes_ = 0, copies_ = 0,
           copied_bytes_ = 0;
};

// Runs the work and returns the costs of its launches.
Counts counts_of(const std::function<void()>& work);

}  // namespace flatshard::ptx_vm
