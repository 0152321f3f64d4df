// How a fault of the device is reported.

#include <cuda_runtime_api.h>

#include "ptx_vm/ptx_vm.h"
#include "runtime/cuda_check.h"
#include "runtime/memory.h"
#include "runtime/trace.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

TEST_CASE("a call that meets a fault of earlier work says so, and what to do") {
  StreamSet streams(Device::cuda(0));
  Stream &compute = streams.add("compute"), &comm = streams.add("comm", StreamRole::comm);
  const Memory memory(Device::cuda(0), 256);
  const Tensor bytes{memory.data(), DType::u8, {256}, memory.device()};
  const ScopedOptions late({.stream_order = WorkOrder::comm_late});
  zero(compute, bytes);
  zero(comm, bytes);  // a race, which only the wait finds
  const std::string error = test::error_of([&] { streams.sync_all(); });
  CAPTURE(error);
  CHECK(error.starts_with("the GPU has failed: "));
  CHECK(error.find("(cudaErrorIllegalAddress), reported by the wait for stream com") != std::string::npos);
  CHECK(error.find("CUDA_LAUNCH_BLOCKING=1") != std::string::npos);
  CHECK(test::error_of([&] {
          zero(compute, bytes);
        }).find("reported by cudaMemsetAsync; an earlier kernel") != std::string::npos);
  CHECK(take_findings().size() == 1);
}

TEST_CASE("a fault that leaves a scope of a trace is the same error") {
  Trace trace;
  StreamSet streams(Device::cuda(0), {.trace = &trace});
  Stream &compute = streams.add("compute"), &comm = streams.add("comm", StreamRole::comm);
  const Memory memory(Device::cuda(0), 256);
  const Tensor bytes{memory.data(), DType::u8, {256}, memory.device()};
  const ScopedOptions late({.stream_order = WorkOrder::comm_late});
  const std::string error = test::error_of([&] {
    const TraceSpan span = compute.span("forward", 0);
    zero(compute, bytes);
    zero(comm, bytes);  // a race
    streams.sync_all();
  });
  CAPTURE(error);
  CHECK(error.starts_with("the GPU has failed: "));
  CHECK(error.find("reported by the wait for stream com") != std::string::npos);
  CHECK(take_findings().size() == 1);
}

TEST_CASE("an error of a call itself is not taken for a fault of the device") {
  CHECK(describe_cuda_error(cudaErrorInvalidValue, "cudaMemcpyAsync").starts_with("cudaMemcpyAsync: "));
  for (const cudaError_t status : {cudaErrorMemoryAllocation, cudaErrorNotReady, cudaErrorInvalidDevice})
    CHECK_FALSE(is_device_fault(status));
  for (const cudaError_t status :
       {cudaErrorIllegalAddress, cudaErrorLaunchFailure, cudaErrorECCUncorrectable})
    CHECK(is_device_fault(status));
  CHECK(describe_cuda_error(cudaErrorECCUncorrectable, "a wait").find("use another GPU") !=
        std::string::npos);
}
