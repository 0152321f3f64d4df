#pragma once
// Warpgroups of four warps. Each warp issues its products (wgmma.mma_async), which run asynchronously and in
// order; until the warp has waited for them, their registers must not be accessed. All four warps must
// execute warpgroup instructions alike.

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "ptx_vm/async.h"
#include "ptx_vm/program.h"

namespace flatshard::ptx_vm {

// The products of one warp that are in flight.
class Products {
 public:
  // Executes wgmma.fence, which orders the warp's register accesses before its next products.
  void fence() { fenced_ = clock_; }
  // Checks and marks the registers of the current op, which is a product, and issues its work.
  void begin(Warp& warp, const ProductForm& form);
  void add(AsyncHandle work) { works_.push_back(std::move(work)); }
  void commit();
  // Waits until at most `groups` groups are in flight.
  void wait(Warp& warp, size_t groups);
  // Checks an ordinary instruction that accesses registers used by products.
  void access(Warp& warp, const Op& op);
  // Called when the warp exits.
  void end(Warp& warp);

  AsyncLine line;

 private:
  struct Product {
    uint32_t op;  // index in the kernel
    const ProductForm* form;
  };
  struct Register {
    uint64_t touched = 1;            // time of the last access by an ordinary instruction
    uint32_t written = 0, read = 0;  // the number of products in flight that write or read it
  };
  Register& at(uint32_t slot);
  [[noreturn]] void report_use(Warp& warp, uint32_t slot) const;
  void retire(const Product& product);

  uint64_t clock_ = 1, fenced_ = 0;
  std::vector<Product> in_flight_;  // sorted by time of issue
  std::vector<AsyncHandle> works_;  // works of these products
  std::deque<size_t> groups_;       // number of products in each group; later products are not committed
  std::vector<Register> registers_;
};

// The warpgroup instructions that the warps of one warpgroup have executed.
class Warpgroup {
 public:
  // Checks the warp's current op, and the operands that must be equal in all four warps, against the other
  // warps.
  void step(Warp& warp, std::array<uint64_t, 3> same = {});

 private:
  struct Step {
    uint32_t op;
    std::array<uint64_t, 3> same;
    int warp;  // the first warp to arrive
  };
  std::deque<Step> steps_;
  std::array<uint64_t, 4> done_{};  // number of steps by each warp
  uint64_t first_ = 0;              // number of steps_[0]
  friend void end_of_warp(Warp& warp);
};

// Removes an exited warp from its warpgroup and runs its products.
void end_of_warp(Warp& warp);

}  // namespace flatshard::ptx_vm
