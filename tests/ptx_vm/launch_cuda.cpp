// The CUDA runtime on the machine: launches.

#include <cstring>
#include <memory>
#include <unordered_map>

#include <cuda_runtime_api.h>

#include "runtime/check.h"
#include "tests/ptx_vm/grid.h"
#include "tests/ptx_vm/memory.h"
#include "tests/ptx_vm/ptx_vm.h"
#include "tests/ptx_vm/registry.h"
#include "tests/ptx_vm/state.h"
#include "tests/ptx_vm/streams.h"

namespace flatshard::ptx_vm {
namespace {

constexpr uint32_t kMaxThreads = 1024, kMaxGridYZ = 65535, kSharedPerBlock = 49152, kSharedOptIn = 166912;

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  void* stream;
};
thread_local std::vector<Configuration> pushed;

// Raised by cudaFuncSetAttribute, per kernel.
std::unordered_map<const void*, uint32_t>& shared_limits() {
  static auto* const only = new std::unordered_map<const void*, uint32_t>;
  return *only;
}

[[noreturn]] void report_limit(const Kernel& kernel, const std::string& what) {
  Finding finding;
  finding.kind = FindingKind::launch_limit;
  finding.where = kernel.where(0);
  finding.text = str(name_of(finding.kind), ": ", what, "\n  in   ", kernel.name);
  throw finding;
}

void check_limits(const Launch& launch, const void* stub) {
  const Kernel& kernel = *launch.kernel;
  const uint64_t threads = launch.block.count();
  if (launch.grid.count() == 0 || threads == 0) report_limit(kernel, "the grid or the block is empty");
  if (launch.grid.y > kMaxGridYZ || launch.grid.z > kMaxGridYZ || launch.grid.x > 0x7fffffffu)
    report_limit(kernel, "the grid is larger than (2^31 - 1, 65535, 65535)");
  const uint32_t most = kernel.max_threads ? kernel.max_threads : kMaxThreads;
  if (threads > most) report_limit(kernel, str("a block of ", threads, " threads, at most ", most));
  const auto raised = shared_limits().find(stub);
  const uint32_t shared = kernel.static_shared_bytes + launch.dynamic_shared_bytes;
  const uint32_t limit =
      raised == shared_limits().end() ? kSharedPerBlock : std::max(kSharedPerBlock, raised->second);
  if (shared > limit)
    report_limit(kernel, str(shared, " bytes of shared memory, at most ", limit,
                             limit == kSharedPerBlock ? "; cudaFuncSetAttribute raises the limit" : ""));
}

Dim to_dim(dim3 d) { return {d.x, d.y, d.z}; }

void run(Launch& launch, Activity& self) {
  self.kernel = launch.kernel;
  self.grid_x = launch.grid.x;
  self.grid_y = launch.grid.y;
  self.warps = static_cast<uint32_t>(launch.warps());
  self.warps_of_block = static_cast<uint32_t>(launch.warps() / launch.grid.count());
  self.first_serial = take_serials(0);  // its warps are the next
  Activity& activity = timeline().begin(self);
  launch.past = Past(activity);
  launch.epochs = Epochs();
  launch.finds_races = options().finds_races;
  launch.last_touched.resize(launch.kernel->code.size(), nullptr);
  execute(launch);
  activity.epochs = std::move(launch.epochs);
}

// Checks the launch and takes its arguments at the call; it runs when its turn comes.
void launch_on(Queue& queue, const void* stub, dim3 grid, dim3 block, void** arguments, size_t shared_bytes) {
  auto launch = std::make_shared<Launch>();
  launch->kernel = &kernel_of(stub);
  launch->grid = to_dim(grid);
  launch->block = to_dim(block);
  launch->dynamic_shared_bytes = static_cast<uint32_t>(shared_bytes);
  check_limits(*launch, stub);
  launch->parameters.resize(launch->kernel->parameter_bytes);
  for (size_t i = 0; i < launch->kernel->parameters.size(); ++i) {
    const Parameter& p = launch->kernel->parameters[i];
    std::memcpy(launch->parameters.data() + p.offset, arguments[i], p.bytes);
  }
  streams().give(queue, "kernel " + launch->kernel->name, [launch](Activity& self) { run(*launch, self); });
}

}  // namespace

extern "C" {

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes, void* stream) {
  pushed.push_back({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes, void** stream) {
  if (pushed.empty()) return cudaErrorMissingConfiguration;
  *grid = pushed.back().grid;
  *block = pushed.back().block;
  *shared_bytes = pushed.back().shared_bytes;
  *stream = pushed.back().stream;
  pushed.pop_back();
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* stub) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(stub));
  return cudaSuccess;
}

cudaError_t cudaLaunchKernel(const void* stub, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
                             cudaStream_t stream) {
  return static_cast<cudaError_t>(
      guarded([&] { launch_on(queue_of(stream), stub, grid, block, arguments, shared_bytes); }));
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared_bytes,
                          stream);
}

cudaError_t cudaFuncSetAttribute(const void* stub, cudaFuncAttribute attribute, int value) {
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
    return static_cast<cudaError_t>(
        outcome(cudaErrorInvalidValue, "the PTX VM does not know this attribute"));
  return static_cast<cudaError_t>(guarded([&] {
    const uint32_t total = kernel_of(stub).static_shared_bytes + static_cast<uint32_t>(value);
    check(total <= kSharedOptIn, total, " bytes of shared memory, a block has at most ", kSharedOptIn);
    shared_limits()[stub] = total;
  }));
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* stub) {
  return static_cast<cudaError_t>(guarded([&] {
    const Kernel& kernel = kernel_of(stub);
    *attributes = {};
    attributes->sharedSizeBytes = kernel.static_shared_bytes;
    attributes->localSizeBytes = kernel.local_bytes;
    attributes->maxThreadsPerBlock = static_cast<int>(kernel.max_threads ? kernel.max_threads : kMaxThreads);
    attributes->ptxVersion = 80;
    attributes->binaryVersion = 80;
  }));
}
}

}  // namespace flatshard::ptx_vm
