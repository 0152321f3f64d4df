#pragma once
// An error that the machine found in a kernel, and its location. It is thrown at the instruction and caught
// by the launch.

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

namespace flatshard::ptx_vm {

struct Warp;
struct Kernel;

enum class FindingKind {
  out_of_bounds,
  use_after_free,
  misaligned_access,
  uninitialised_read,
  async_in_flight,
  shared_race,
  global_race,
  stream_race,
  warp_race,
  colliding_writes,
  divergent_barrier,
  divergent_warp,
  barrier_count,
  shuffle_mask,
  mbarrier_misuse,
  early_read,
  async_race,
  cluster_exit,
  tensor_map,
  divergent_warpgroup,
  matrix_descriptor,
  in_flight_register,
  missing_wgmma_fence,
  missing_proxy_fence,
  register_pool,
  deadlock,
  launch_limit,
  host_changed_source,
  float_atomic,
  trap,
};
std::string_view name_of(FindingKind kind);

struct Finding : std::exception {
  FindingKind kind;
  std::string where;  // file:line, and the calls that inlined it
  std::string text;   // the whole report
  const char* what() const noexcept override { return text.c_str(); }
};

// Makes an address readable: "byte 1024 of device allocation 3 of 4096 bytes".
std::string describe_address(const Warp& warp, uint64_t address);

std::string describe_address(uint64_t address);  // an address in global memory

// Throws a report about `lane` of this warp and its current instruction.
[[noreturn]] void report(FindingKind kind, const Warp& warp, int lane, const std::string& what);
// Describes another thread and instruction: "block (1,0,0) warp 2 lane 5 at kernels/adamw.cu:52".
std::string describe_actor(const Warp& warp, uint32_t serial, int lane, uint32_t op);

// Throws a report about a stream operation that is not a running kernel.
[[noreturn]] void report_operation(FindingKind kind, const std::string& operation, const std::string& what);
// Describes the operation that left this mark in the shadow of memory: "kernel f on stream 2 (comm), block
// (1,0,0) warp 2 lane 5 at f.cu:52".
std::string describe_past(uint64_t mark);

}  // namespace flatshard::ptx_vm
