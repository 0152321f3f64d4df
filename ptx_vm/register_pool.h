#pragma once
// The registers of a block, which its warpgroups redistribute with setmaxnreg. Their total number is fixed
// when the block starts.

#include <cstdint>
#include <string>
#include <vector>

namespace flatshard::ptx_vm {

struct Warp;

class RegisterPool {
 public:
  // `blocks` blocks share the registers of a multiprocessor.
  void start(uint32_t threads, uint32_t warps, uint32_t blocks);
  // Gives each thread of the warp `each` registers; the warp waits until they are free.
  void increase(Warp& warp, uint32_t each);
  void decrease(Warp& warp, uint32_t each);
  // Returns ", which waits for ..." for a waiting warp, else "".
  std::string describe(const Warp& warp) const;

 private:
  struct Request {
    Warp* warp;
    uint32_t each;
  };
  bool grant(const Request& request);

  int64_t free_ = 0;
  std::vector<uint32_t> each_;  // registers per thread, by warp
  std::vector<Request> waiting_;
};

}  // namespace flatshard::ptx_vm
