#include "ptx_vm/report.h"

#include "ptx_vm/grid.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/timeline.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

std::string text_of(const Dim& d) { return str('(', d.x, ',', d.y, ',', d.z, ')'); }

std::string thread_of(const Warp& warp, int lane) {
  const Dim& b = warp.block->launch->block;
  const auto t = static_cast<uint32_t>(warp.index * kLanes + lane);
  return text_of({t % b.x, t / b.x % b.y, t / b.x / b.y});
}

// A thread of a kernel that runs or ran.
std::string actor_of(const Activity& kernel, uint32_t serial, int lane, uint32_t op) {
  const uint64_t index = serial - kernel.first_serial;
  const std::string at = str(" at ", kernel.kernel->where(op));
  if (index >= kernel.warps) return str("asynchronous work", at);
  const uint64_t block = index / kernel.warps_of_block;
  const Dim id{static_cast<uint32_t>(block % kernel.grid_x),
               static_cast<uint32_t>(block / kernel.grid_x % kernel.grid_y),
               static_cast<uint32_t>(block / kernel.grid_x / kernel.grid_y)};
  return str("block ", text_of(id), " warp ", index % kernel.warps_of_block,
             lane == Stamp::kManyLanes ? std::string(", several lanes") : str(" lane ", lane), at);
}

}  // namespace

std::string_view name_of(FindingKind kind) {
  switch (kind) {
    case FindingKind::out_of_bounds:
      return "out of bounds";
    case FindingKind::use_after_free:
      return "use after free";
    case FindingKind::misaligned_access:
      return "misaligned access";
    case FindingKind::uninitialised_read:
      return "uninitialized read";
    case FindingKind::async_in_flight:
      return "asynchronous copy in flight";
    case FindingKind::shared_race:
      return "race in shared memory";
    case FindingKind::global_race:
      return "race in global memory";
    case FindingKind::stream_race:
      return "race between streams";
    case FindingKind::warp_race:
      return "race within a warp";
    case FindingKind::colliding_writes:
      return "colliding writes of one instruction";
    case FindingKind::divergent_barrier:
      return "divergent barrier";
    case FindingKind::divergent_warp:
      return "divergent warp";
    case FindingKind::barrier_count:
      return "barrier count";
    case FindingKind::shuffle_mask:
      return "shuffle mask";
    case FindingKind::mbarrier_misuse:
      return "mbarrier misuse";
    case FindingKind::early_read:
      return "early read of asynchronous work";
    case FindingKind::async_race:
      return "race with asynchronous work";
    case FindingKind::cluster_exit:
      return "cluster block exited early";
    case FindingKind::tensor_map:
      return "tensor map";
    case FindingKind::divergent_warpgroup:
      return "divergent warpgroup";
    case FindingKind::matrix_descriptor:
      return "matrix descriptor";
    case FindingKind::in_flight_register:
      return "register in flight";
    case FindingKind::missing_wgmma_fence:
      return "missing wgmma.fence";
    case FindingKind::missing_proxy_fence:
      return "missing fence.proxy.async";
    case FindingKind::register_pool:
      return "register pool";
    case FindingKind::deadlock:
      return "deadlock";
    case FindingKind::launch_limit:
      return "launch limit";
    case FindingKind::host_changed_source:
      return "copy source modified";
    case FindingKind::float_atomic:
      return "float atomic";
    case FindingKind::trap:
      return "trap";
  }
  return "unknown";
}

void report(FindingKind kind, const Warp& warp, int lane, const std::string& what) {
  const Kernel& kernel = warp.block->kernel();
  Finding finding;
  finding.kind = kind;
  finding.where = kernel.where(warp.current);
  finding.text = str(name_of(kind), ": ", what, "\n  in   ", warp.block->launch->past.now().what,
                     "\n  by   block ", text_of(warp.block->id), " thread ", thread_of(warp, lane), ", warp ",
                     warp.index, " lane ", lane, "\n  at   ", finding.where, ": ",
                     kernel.instructions[warp.current]->opcode, "\n  with ", describe(options()));
  throw finding;
}

std::string describe_address(const Warp& warp, uint64_t address) {
  const Kernel& kernel = warp.block->kernel();
  switch (address & kWindowMask) {
    case kSharedWindow:
      return str("byte ", static_cast<int64_t>(address_in_block(address) - kSharedBase), " of ",
                 address & kRankMask ? str("block ", (address >> kRankShift & 0xff) - 1, " of the cluster's ")
                                     : std::string("the block's "),
                 warp.block->shared.size(), " bytes of shared memory");
    case kLocalWindow:
      return str("byte ", static_cast<int64_t>((address & ~kWindowMask) - kLocalBase), " of the thread's ",
                 kernel.local_bytes, " bytes of local memory");
    case kParamWindow:
      return str("byte ", address & ~kWindowMask, " of the kernel's ", kernel.parameter_bytes,
                 " bytes of parameters");
    default:
      break;
  }
  return describe_address(address);
}

std::string describe_address(uint64_t address) {
  const Allocation* a = heap().nearest(address);
  if (!a) return str("address 0x", std::hex, address, ", which belongs to no allocation");
  return str("byte ", static_cast<int64_t>(address - a->begin), " of ", a->name);
}

std::string describe_actor(const Warp& warp, uint32_t serial, int lane, uint32_t op) {
  const Launch& launch = *warp.block->launch;
  if (const AsyncWork* work = launch.async.find(serial))
    return str("the work that ", describe_actor(warp, work->issuer, work->lane, op), " issued");
  return actor_of(launch.past.now(), serial, lane, op);
}

std::string describe_past(uint64_t mark) {
  const Activity* past = timeline().find(mark);
  if (!past) return "an operation";
  if (!past->kernel) return past->what;
  const Epoch& epoch = past->epochs.at(static_cast<uint32_t>(mark >> kEpochShift));
  const Stamp stamp{mark, epoch.serial, epoch.time};
  return str(past->what, ", ", actor_of(*past, stamp.serial, static_cast<int>(stamp.lane()), stamp.op()),
             ',');
}

void report_operation(FindingKind kind, const std::string& operation, const std::string& what) {
  Finding finding;
  finding.kind = kind;
  finding.where = operation;
  finding.text = str(name_of(kind), ": ", what, "\n  in   ", operation, "\n  with ", describe(options()));
  throw finding;
}

}  // namespace flatshard::ptx_vm
