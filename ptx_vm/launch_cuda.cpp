// The CUDA runtime on the machine: launches.

#include <cstring>
#include <memory>
#include <optional>

#include <cuda_runtime_api.h>

#include "ptx_vm/device.h"
#include "ptx_vm/function.h"
#include "ptx_vm/grid.h"
#include "ptx_vm/memory.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/registry.h"
#include "ptx_vm/state.h"
#include "ptx_vm/streams.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes;
  void* stream;
};
thread_local std::vector<Configuration> pushed;

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
  if (launch.block.z > kMaxBlockZ)
    report_limit(kernel, str("a block with z = ", launch.block.z, ", at most ", kMaxBlockZ));
  const uint32_t shared = kernel.declared_shared_bytes() + launch.dynamic_shared_bytes;
  const uint32_t limit = shared_limit_of(stub);
  if (shared > limit)
    report_limit(kernel, str(shared, " bytes of shared memory, at most ", limit,
                             limit == kSharedPerBlock ? "; cudaFuncSetAttribute raises the limit" : ""));
}

Dim to_dim(dim3 d) { return {d.x, d.y, d.z}; }

// The launch's cluster is given by the attribute or declared by the kernel.
void choose_cluster(Launch& launch, const void* stub, const std::optional<Dim>& attribute) {
  const Kernel& kernel = *launch.kernel;
  const auto [x, y, z] = kernel.cluster;
  const Dim declared{x, y, z};
  if (!attribute && x == 0) return;
  launch.cluster = attribute ? *attribute : declared;
  launch.has_clusters = true;
  const Dim &c = launch.cluster, &g = launch.grid;
  const std::string size = str('(', c.x, ',', c.y, ',', c.z, ')');
  if (x != 0 && attribute && (c.x != x || c.y != y || c.z != z))
    report_limit(kernel, str("a cluster of ", size, ", but the kernel declares another size"));
  if (c.count() == 0 || g.x % c.x || g.y % c.y || g.z % c.z)
    report_limit(kernel, str("the grid is not a multiple of the cluster size ", size));
  const uint32_t most = largest_cluster_of(stub);
  if (c.count() > most) report_limit(kernel, str("a cluster of ", c.count(), " blocks, at most ", most));
  if (options().arch < 90) report_limit(kernel, "the device has no clusters");
}

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

// All blocks of a cooperative launch are resident at a time.
void check_all_fit(const Launch& launch) {
  const uint64_t most = uint64_t{kProcessors} * blocks_per_processor(*launch.kernel, launch.block.count(),
                                                                     launch.dynamic_shared_bytes);
  if (launch.grid.count() > most)
    throw CallError(cudaErrorCooperativeLaunchTooLarge, str("a cooperative launch of ", launch.grid.count(),
                                                            " blocks, but only ", most, " fit at a time"));
}

// Applies attributes to a launch.
struct Shape {
  bool is_cooperative = false;
  std::optional<Dim> cluster{};
};

// Checks the launch and copies its arguments at the call; it runs in stream order.
void launch_on(Queue& queue, const void* stub, dim3 grid, dim3 block, void** arguments, size_t shared_bytes,
               const Shape& shape) {
  auto launch = std::make_shared<Launch>();
  launch->kernel = &kernel_of(stub);
  launch->grid = to_dim(grid);
  launch->block = to_dim(block);
  launch->dynamic_shared_bytes = static_cast<uint32_t>(shared_bytes);
  launch->is_cooperative = shape.is_cooperative;
  check_limits(*launch, stub);
  choose_cluster(*launch, stub, shape.cluster);
  if (shape.is_cooperative) check_all_fit(*launch);
  launch->parameters.resize(launch->kernel->parameter_bytes);
  for (size_t i = 0; i < launch->kernel->parameters.size(); ++i) {
    const Parameter& p = launch->kernel->parameters[i];
    std::memcpy(launch->parameters.data() + p.offset, arguments[i], p.bytes);
  }
  streams().enqueue(queue, "kernel " + launch->kernel->name, [launch](Activity& self) {
    Launch once = *launch;  // a graph runs it again
    run(once, self);
  });
}

// An operation runs atomically, so its priority, and permission to begin before the previous one ends, have
// no effect.
Shape take_attributes(const cudaLaunchConfig_t& config) {
  Shape shape;
  for (unsigned i = 0; i < config.numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config.attrs[i];
    switch (attribute.id) {
      case cudaLaunchAttributeIgnore:
      case cudaLaunchAttributePriority:
      case cudaLaunchAttributeProgrammaticStreamSerialization:
        break;
      case cudaLaunchAttributeCooperative:
        shape.is_cooperative = attribute.val.cooperative != 0;
        break;
      case cudaLaunchAttributeClusterDimension:
        shape.cluster = {attribute.val.clusterDim.x, attribute.val.clusterDim.y, attribute.val.clusterDim.z};
        break;
      default:
        fail(str("the PTX machine does not support attribute ", int{attribute.id}, " of a launch"));
    }
  }
  return shape;
}

template <class Work>
cudaError_t attempt(Work&& work) {
  return static_cast<cudaError_t>(guarded(work));
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
  return attempt([&] { launch_on(queue_of(stream), stub, grid, block, arguments, shared_bytes, {}); });
}
cudaError_t cudaLaunchCooperativeKernel(const void* stub, dim3 grid, dim3 block, void** arguments,
                                        size_t shared_bytes, cudaStream_t stream) {
  return attempt([&] {
    launch_on(queue_of(stream), stub, grid, block, arguments, shared_bytes, {.is_cooperative = true});
  });
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* stub, void** arguments) {
  return attempt([&] {
    launch_on(queue_of(c->stream), stub, c->gridDim, c->blockDim, arguments, c->dynamicSmemBytes,
              take_attributes(*c));
  });
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared_bytes, cudaStream_t stream) {
  return cudaLaunchKernel(reinterpret_cast<const void*>(kernel), grid, block, arguments, shared_bytes,
                          stream);
}
}

}  // namespace flatshard::ptx_vm
