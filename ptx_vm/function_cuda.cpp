// The CUDA runtime on the machine: attributes and occupancy of kernels.

#include <algorithm>
#include <unordered_map>

#include <cuda_runtime_api.h>

#include "ptx_vm/device.h"
#include "ptx_vm/function.h"
#include "ptx_vm/registry.h"
#include "ptx_vm/state.h"
#include "ptx_vm/warp.h"

namespace flatshard::ptx_vm {
namespace {

struct Settings {
  uint32_t shared_bytes = kSharedPerBlock;
  uint32_t largest_cluster = 8;
  int carveout = -1;  // percent; -1: the driver's choice
};

std::unordered_map<const void*, Settings>& settings() {
  static auto* const only = new std::unordered_map<const void*, Settings>;
  return *only;
}

template <class Work>
cudaError_t attempt(Work&& work) {
  return static_cast<cudaError_t>(guarded(work));
}

}  // namespace

uint32_t shared_limit_of(const void* stub) {
  const auto found = settings().find(stub);
  return found == settings().end() ? kSharedPerBlock : found->second.shared_bytes;
}

uint32_t largest_cluster_of(const void* stub) { return settings()[stub].largest_cluster; }

uint32_t blocks_per_processor(const Kernel& kernel, uint64_t threads, uint64_t dynamic_shared_bytes) {
  const uint64_t most = kernel.max_threads ? kernel.max_threads : kMaxThreads;
  const uint64_t shared = kernel.declared_shared_bytes() + dynamic_shared_bytes;
  if (threads == 0 || threads > most || shared > architecture().shared_opt_in) return 0;
  const uint64_t whole_warps = (threads + kLanes - 1) / kLanes * kLanes;
  return static_cast<uint32_t>(std::min({uint64_t{kBlocksPerProcessor}, kThreadsPerProcessor / whole_warps,
                                         architecture().shared_per_processor / (shared + kSharedReserved)}));
}

extern "C" {

cudaError_t cudaFuncSetAttribute(const void* stub, cudaFuncAttribute attribute, int value) {
  return attempt([&] {
    const Kernel& kernel = kernel_of(stub);
    switch (attribute) {
      case cudaFuncAttributeMaxDynamicSharedMemorySize: {
        const int64_t total = int64_t{kernel.declared_shared_bytes()} + value;
        check(value >= 0 && total <= architecture().shared_opt_in, total,
              " bytes of shared memory, a block has at most ", architecture().shared_opt_in);
        settings()[stub].shared_bytes = std::max(kSharedPerBlock, static_cast<uint32_t>(total));
        return;
      }
      case cudaFuncAttributePreferredSharedMemoryCarveout:
        check(value >= -1 && value <= 100, "a carveout of ", value, " percent");
        settings()[stub].carveout = value;
        return;
      case cudaFuncAttributeNonPortableClusterSizeAllowed:
        settings()[stub].largest_cluster = value ? 16 : 8;
        return;
      default:
        fail(str("the PTX machine does not support attribute ", int{attribute}, " of a kernel"));
    }
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* stub) {
  return attempt([&] {
    const Kernel& kernel = kernel_of(stub);
    *attributes = {};
    attributes->sharedSizeBytes = kernel.declared_shared_bytes();
    attributes->localSizeBytes = kernel.local_bytes;
    attributes->maxThreadsPerBlock = static_cast<int>(kernel.max_threads ? kernel.max_threads : kMaxThreads);
    attributes->maxDynamicSharedSizeBytes =
        static_cast<int>(shared_limit_of(stub) - kernel.declared_shared_bytes());
    attributes->preferredShmemCarveout = settings()[stub].carveout;
    attributes->ptxVersion = attributes->binaryVersion = architecture_of(*kernel.module);
  });
}

cudaError_t cudaOccupancyMaxActiveClusters(int* clusters, const void* stub, const cudaLaunchConfig_t* c) {
  return attempt([&] {
    const Kernel& kernel = kernel_of(stub);
    uint64_t size = std::max(1u, kernel.cluster[0] * kernel.cluster[1] * kernel.cluster[2]);
    for (unsigned i = 0; i < c->numAttrs; ++i)
      if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) {
        const auto& dim = c->attrs[i].val.clusterDim;
        size = uint64_t{dim.x} * dim.y * dim.z;
      }
    check(size > 0 && size <= largest_cluster_of(stub), "a cluster of ", size, " blocks, at most ",
          largest_cluster_of(stub));
    const uint64_t threads = uint64_t{c->blockDim.x} * c->blockDim.y * c->blockDim.z;
    *clusters =
        static_cast<int>(kProcessors * blocks_per_processor(kernel, threads, c->dynamicSmemBytes) / size);
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* stub, int threads,
                                                                   size_t dynamic_shared_bytes,
                                                                   unsigned flags) {
  return attempt([&] {
    check(threads > 0, "a block of ", threads, " threads");
    check(flags == cudaOccupancyDefault || flags == cudaOccupancyDisableCachingOverride,
          "occupancy with flags ", flags);
    *blocks = static_cast<int>(
        blocks_per_processor(kernel_of(stub), static_cast<uint64_t>(threads), dynamic_shared_bytes));
  });
}
}

}  // namespace flatshard::ptx_vm
