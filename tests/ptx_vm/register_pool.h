#pragma once
// The registers of a block, which its warpgroups trade by setmaxnreg: all that the block's threads begin
// with, and no more.

#include <cstdint>
#include <string>
#include <vector>

namespace flatshard::ptx_vm {

struct Warp;

class RegisterPool {
 public:
  // So many blocks share the registers of a multiprocessor.
  void start(uint32_t threads, uint32_t warps, uint32_t blocks);
  // From now on the warp's threads have so many registers each; where they are not free, the warp waits.
  void increase(Warp& warp, uint32_t each);
  void decrease(Warp& warp, uint32_t each);
  // ", which waits for ..." of a warp that does, else nothing.
  std::string describe(const Warp& warp) const;

 private:
  struct Request {
    Warp* warp;
    uint32_t each;
  };
  bool grant(const Request& request);

  int64_t free_ = 0;
  std::vector<uint32_t> each_;  // by warp
  std::vector<Request> waiting_;
};

}  // namespace flatshard::ptx_vm
