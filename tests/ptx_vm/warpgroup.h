#pragma once
// What four warps do as one warpgroup. Each issues its products (wgmma.mma_async) and they run beside it, in
// order; until it has waited for them, their accumulators and what they read from registers must be left
// alone. And what the instruction sets ask of a warpgroup, its warps must all do alike.

#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "tests/ptx_vm/async.h"
#include "tests/ptx_vm/program.h"

namespace flatshard::ptx_vm {

// The products of one warp that nobody has waited for.
class Products {
 public:
  // wgmma.fence: what the warp did to its registers so far happened before its next products.
  void fence() { fenced_ = clock_; }
  // Checks and marks the registers of the warp's current op, a product; its work then goes to the line.
  void begin(Warp& warp, const ProductForm& form);
  void add(AsyncHandle work) { works_.push_back(std::move(work)); }
  void commit();
  // Until at most so many of the latest groups are in flight.
  void wait(Warp& warp, size_t groups);
  // An ordinary instruction accesses registers that products use.
  void access(Warp& warp, const Op& op);
  // The warp has ended.
  void end(Warp& warp);

  AsyncLine line;

 private:
  struct Product {
    uint32_t op;  // which op of the kernel
    const ProductForm* form;
  };
  struct Register {
    uint64_t touched = 1;            // when an ordinary instruction last did
    uint32_t written = 0, read = 0;  // by how many products in flight
  };
  Register& at(uint32_t slot);
  [[noreturn]] void report_use(Warp& warp, uint32_t slot) const;
  void retire(const Product& product);

  uint64_t clock_ = 1, fenced_ = 0;
  std::vector<Product> in_flight_;  // in order
  std::vector<AsyncHandle> works_;  // of those
  std::deque<size_t> groups_;       // how many products each has; what follows is not committed
  std::vector<Register> registers_;
};

// What the warps of one warpgroup have done together.
class Warpgroup {
 public:
  // The warp's current op, with what must be the same in all four: a finding where another did otherwise.
  void step(Warp& warp, std::array<uint64_t, 3> same = {});

 private:
  struct Step {
    uint32_t op;
    std::array<uint64_t, 3> same;
    int warp;  // that came first
  };
  std::deque<Step> steps_;
  std::array<uint64_t, 4> done_{};  // by each warp
  uint64_t first_ = 0;              // number of steps_[0]
  friend void end_of_warp(Warp& warp);
};

// Its warpgroup goes on without it, and its products run to their end.
void end_of_warp(Warp& warp);

}  // namespace flatshard::ptx_vm
