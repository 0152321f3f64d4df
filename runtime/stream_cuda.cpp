// Streams and events on a CUDA device.

#include <memory>
#include <utility>

#include "runtime/cuda.h"
#include "runtime/cuda_check.h"
#include "runtime/host_work.h"

namespace flatshard::cuda {
namespace {

void record(void*& event, unsigned flags, Device device, void* stream) {
  if (!event) {
    cuda_check(cudaSetDevice(device.index), "cudaSetDevice");
    cudaEvent_t created = nullptr;
    cuda_check(cudaEventCreateWithFlags(&created, flags), "cudaEventCreateWithFlags");
    event = created;
  }
  cuda_check(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)),
             "cudaEventRecord");
}

}  // namespace

void* create_stream(Device device, bool high_priority) {
  select_device(device);
  int lowest = 0, highest = 0;
  cuda_check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, high_priority ? highest : lowest),
             "cudaStreamCreateWithPriority");
  return stream;
}

void destroy_stream(void* stream) noexcept { cudaStreamDestroy(static_cast<cudaStream_t>(stream)); }

void sync_stream(void* stream, const std::string& name) {
  const cudaError_t status = cudaStreamSynchronize(static_cast<cudaStream_t>(stream));
  if (status != cudaSuccess) fail(describe_cuda_error(status, "the wait for stream " + name));
}

// The callback hands the work to a thread of the run and sleeps until it is done. The driver permits that
// because the work depends on no later CUDA work. A wait for a word in pinned memory (cuStreamWaitValue32)
// would free the driver's thread, but cuda.h warns of deadlocks, not every driver and configuration supports
// it, and an error could leave a stream that waits forever. It would gain nothing: work of several streams
// shares the same threads anyway, and NCCL uses callbacks only in captured graphs, which have no host work,
// and under CUDA_LAUNCH_BLOCKING=1.
void run_on_host(void* stream, std::function<void()> work) {
  auto* owned = new std::function<void()>(std::move(work));
  const auto run = [](void* data) noexcept {
    static auto* const host = new HostWork;  // never destroyed: the driver's thread may outlive main()
    const std::unique_ptr<std::function<void()>> mine(static_cast<std::function<void()>*>(data));
    host->run(*mine);
  };
  const cudaError_t status = cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), run, owned);
  if (status != cudaSuccess) delete owned;
  cuda_check(status, "cudaLaunchHostFunc");
}

void record_event(void*& event, Device device, void* stream) {
  record(event, cudaEventDisableTiming, device, stream);
}

void record_time(void*& event, Device device, void* stream) {
  record(event, cudaEventDefault, device, stream);
}

bool has_reached(void* event) {
  const cudaError_t status = cudaEventQuery(static_cast<cudaEvent_t>(event));
  if (status == cudaErrorNotReady) {
    cudaGetLastError();  // clears the status, which the next check of a launch would report
    return false;
  }
  cuda_check(status, "cudaEventQuery");
  return true;
}

double seconds_between(void* begin, void* end) {
  cuda_check(cudaEventSynchronize(static_cast<cudaEvent_t>(end)), "cudaEventSynchronize");
  float milliseconds = 0;
  cuda_check(
      cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(begin), static_cast<cudaEvent_t>(end)),
      "cudaEventElapsedTime");
  return 1e-3 * static_cast<double>(milliseconds);
}

void destroy_event(void* event) noexcept { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }

void wait_event(void* stream, void* event) {
  cuda_check(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0),
             "cudaStreamWaitEvent");
}

}  // namespace flatshard::cuda
