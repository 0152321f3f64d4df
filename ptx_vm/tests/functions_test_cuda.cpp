// Queries about the device and kernels, and launches with attributes.

#include <algorithm>

#include <cuda_runtime_api.h>

#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/tests/language.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

int attribute(cudaDeviceAttr which) {
  int value = -1;
  CHECK(cudaDeviceGetAttribute(&value, which, 0) == cudaSuccess);
  return value;
}

int occupancy(int threads, size_t shared_bytes) {
  int blocks = -1;
  CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            &blocks, stub_of_bounded(), threads, shared_bytes, cudaOccupancyDefault) == cudaSuccess);
  return blocks;
}

// Of one warp, with one attribute.
cudaError_t launch_with(cudaLaunchAttribute a) {
  float* y = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&y), sizeof(float));
  cudaMemset(y, 0, sizeof(float));
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(1);
  config.blockDim = dim3(32);
  config.attrs = &a;
  config.numAttrs = 1;
  void* arguments[] = {&y};
  const cudaError_t status = cudaLaunchKernelExC(&config, stub_of_bounded(), arguments);
  cudaFree(y);
  cudaGetLastError();
  return status;
}

}  // namespace

TEST_CASE("device properties and attributes agree") {
  const ScopedOptions newer({.arch = 90});
  cudaDeviceProp p;
  CHECK(cudaGetDeviceProperties(&p, 0) == cudaSuccess);
  CHECK(std::string(p.name) == "PTX VM sm_90a");
  CHECK(p.multiProcessorCount == 132);
  CHECK(attribute(cudaDevAttrMultiProcessorCount) == 132);
  CHECK(p.maxThreadsDim[2] == attribute(cudaDevAttrMaxBlockDimZ));
  CHECK(p.sharedMemPerBlockOptin == 232448);
  CHECK(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) == 232448);
  CHECK(p.streamPrioritiesSupported == 1);
  int value = 0;
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxTexture1DWidth, 0) == cudaErrorInvalidValue);
  CHECK(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 1) == cudaErrorInvalidDevice);
  cudaGetLastError();
}

TEST_CASE("a device limit can be set and read, an unknown one is an error") {
  size_t before = 0, value = 0;
  CHECK(cudaDeviceGetLimit(&before, cudaLimitStackSize) == cudaSuccess);
  CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 4096) == cudaSuccess);
  CHECK(cudaDeviceGetLimit(&value, cudaLimitStackSize) == cudaSuccess);
  CHECK(value == 4096);
  cudaDeviceSetLimit(cudaLimitStackSize, before);
  CHECK(cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, 1) == cudaErrorUnsupportedLimit);
  CHECK(std::string(cudaGetErrorName(cudaGetLastError())) == "cudaErrorUnsupportedLimit");
}

TEST_CASE("occupancy depends on threads and shared memory") {
  const ScopedOptions newer({.arch = 90});
  CHECK(occupancy(256, 0) == 8);     // 2048 threads
  CHECK(occupancy(33, 0) == 32);     // two warps each; 32 blocks are the most
  CHECK(occupancy(200, 0) == 9);     // seven warps each
  CHECK(occupancy(32, 40000) == 5);  // 233472 / (40000 + 112 + 1024) bytes
  CHECK(occupancy(32, 160000) == 1);
  CHECK(occupancy(32, 240000) == 0);
  CHECK(occupancy(512, 0) == 0);  // its bounds are 256
}

TEST_CASE("kernel attributes describe the kernel and raise its shared-memory limit") {
  const ScopedOptions newer({.arch = 90});
  cudaFuncAttributes a;
  CHECK(cudaFuncGetAttributes(&a, stub_of_bounded()) == cudaSuccess);
  CHECK(a.sharedSizeBytes == 112);  // 100, up to where dynamic shared memory may begin
  CHECK(a.maxThreadsPerBlock == 256);
  CHECK(a.ptxVersion == 90);
  CHECK(a.maxDynamicSharedSizeBytes == 49152 - 112);
  CHECK(a.preferredShmemCarveout == -1);
  CHECK(cudaFuncSetAttribute(stub_of_bounded(), cudaFuncAttributeMaxDynamicSharedMemorySize, 100000) ==
        cudaSuccess);
  CHECK(cudaFuncSetAttribute(stub_of_bounded(), cudaFuncAttributePreferredSharedMemoryCarveout, 50) ==
        cudaSuccess);
  CHECK(cudaFuncGetAttributes(&a, stub_of_bounded()) == cudaSuccess);
  CHECK(a.maxDynamicSharedSizeBytes == 100000);
  CHECK(a.preferredShmemCarveout == 50);
  CHECK(cudaFuncSetAttribute(stub_of_bounded(), cudaFuncAttributeMaxDynamicSharedMemorySize, 232448) ==
        cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(stub_of_bounded(), cudaFuncAttributePreferredSharedMemoryCarveout, 101) ==
        cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_CASE("launch attributes: priority and programmatic launch have no effect, a cluster divides the grid") {
  const ScopedOptions newer({.arch = 90});
  cudaLaunchAttribute a{};
  a.id = cudaLaunchAttributePriority;
  a.val.priority = -5;
  CHECK(launch_with(a) == cudaSuccess);
  a.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  a.val.programmaticStreamSerializationAllowed = 1;
  CHECK(launch_with(a) == cudaSuccess);
  a.id = cudaLaunchAttributeClusterDimension;
  a.val.clusterDim = {2, 1, 1};
  CHECK(launch_with(a) == cudaErrorIllegalAddress);  // of a grid of one block
  const std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  CHECK(found[0].kind == FindingKind::launch_limit);
  a.val.clusterDim = {1, 1, 1};
  CHECK(launch_with(a) == cudaSuccess);
  a.id = cudaLaunchAttributeAccessPolicyWindow;
  CHECK(launch_with(a) == cudaErrorInvalidValue);
}

TEST_CASE("cluster occupancy follows from block occupancy, and more than 8 blocks must be allowed") {
  const ScopedOptions newer({.arch = 90});
  cudaLaunchAttribute a{};
  a.id = cudaLaunchAttributeClusterDimension;
  a.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(32);
  config.blockDim = dim3(256);
  config.attrs = &a;
  config.numAttrs = 1;
  int clusters = 0;
  CHECK(cudaOccupancyMaxActiveClusters(&clusters, stub_of_bounded(), &config) == cudaSuccess);
  CHECK(clusters == 132 * 8 / 2);
  a.val.clusterDim = {16, 1, 1};
  CHECK(cudaOccupancyMaxActiveClusters(&clusters, stub_of_bounded(), &config) == cudaErrorInvalidValue);
  CHECK(cudaFuncSetAttribute(stub_of_bounded(), cudaFuncAttributeNonPortableClusterSizeAllowed, 1) ==
        cudaSuccess);
  CHECK(cudaOccupancyMaxActiveClusters(&clusters, stub_of_bounded(), &config) == cudaSuccess);
  CHECK(clusters == 132 * 8 / 16);
  cudaGetLastError();
}

TEST_CASE(
    "all blocks of a cooperative launch are resident; an ordinary launch with a grid barrier deadlocks") {
  const ScopedOptions scope({.resident_blocks = 2, .arch = 90});
  std::vector<int> seen;
  CHECK(run_grid_barrier(40, true, &seen) == cudaSuccess);
  CHECK(seen == std::vector<int>(40, 40));
  CHECK(take_findings().empty());
  CHECK(run_grid_barrier(40, false, &seen) == cudaErrorIllegalAddress);
  const std::vector<Finding> found = take_findings();
  REQUIRE(found.size() == 1);
  CHECK(found[0].kind == FindingKind::deadlock);
  CHECK(run_grid_barrier(132 * 32 + 1, true, &seen) == cudaErrorCooperativeLaunchTooLarge);
  cudaGetLastError();
}
