#include <cstring>

#include <cuda_runtime.h>

#include "ptx_vm/tests/stream_samples.h"
#include "runtime/check.h"

namespace flatshard::ptx_vm {
namespace {

constexpr int kSize = 200;
constexpr size_t kBytes = kSize * sizeof(float);

__global__ void filled(float* y, float value) {
  if (threadIdx.x < kSize) y[threadIdx.x] = value;
}
__global__ void doubled(float* y, const float* x) {
  if (threadIdx.x < kSize) y[threadIdx.x] = 2.0f * x[threadIdx.x];
}
__global__ void raised(int* flag) { atomicExch(flag, 1); }
__global__ void awaited(int* flag) {
  while (atomicAdd(flag, 0) == 0) __nanosleep(20);
}

enum class Broken {
  none,
  read_too_early,
  written_too_early,
  record_too_early,
  copied_too_early,
  cleared_too_late,
  pinned_read_too_early,
  default_stream_not_waited_for,
  freed_too_early,
  used_after_free,
  used_before_allocation,
  pinned_source_changed,
};

// Two streams that do not wait for the default stream, and their data.
struct Program {
  Program() {
    cudaStreamCreateWithPriority(&compute, cudaStreamNonBlocking, 0);
    cudaStreamCreateWithPriority(&comm, cudaStreamNonBlocking, -5);
    cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
    cudaMalloc(&x, kBytes);
    cudaMalloc(&y, kBytes);
    cudaMallocHost(&pinned, kBytes);
    check(pinned != nullptr, "a stream sample starts after a CUDA call has failed");
    for (int i = 0; i < kSize; ++i) pinned[i] = static_cast<float>(i);
    cudaMemcpy(x, pinned, kBytes, cudaMemcpyHostToDevice);
    cudaMemset(y, 0, kBytes);
    cudaDeviceSynchronize();
  }
  ~Program() {
    cudaFree(x);
    cudaFree(y);
    cudaFreeHost(pinned);
    cudaEventDestroy(ready);
    cudaStreamDestroy(compute);
    cudaStreamDestroy(comm);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void order(cudaStream_t first, cudaStream_t second) const {
    cudaEventRecord(ready, first);
    cudaStreamWaitEvent(second, ready, 0);
  }
  std::vector<float> values(const float* from) const {
    std::vector<float> all(kSize);
    cudaDeviceSynchronize();
    if (cudaMemcpy(all.data(), from, kBytes, cudaMemcpyDeviceToHost) != cudaSuccess) all.clear();
    return all;
  }

  cudaStream_t compute = nullptr, comm = nullptr;
  cudaEvent_t ready = nullptr;
  float *x = nullptr, *y = nullptr, *pinned = nullptr;
};

// One kernel writes what another on the other stream reads.
template <Broken B>
std::vector<float> handed_over() {
  const Program p;
  if (B == Broken::record_too_early) p.order(p.comm, p.compute);
  filled<<<1, 256, 0, p.comm>>>(p.x, 3.0f);
  if (B == Broken::none) p.order(p.comm, p.compute);
  doubled<<<1, 256, 0, p.compute>>>(p.y, p.x);
  return p.values(p.y);
}

// One kernel reads what another then overwrites.
template <Broken B>
std::vector<float> overwritten() {
  const Program p;
  doubled<<<1, 256, 0, p.compute>>>(p.y, p.x);
  if (B == Broken::none) p.order(p.compute, p.comm);
  filled<<<1, 256, 0, p.comm>>>(p.x, 3.0f);
  return p.values(p.y);
}

// A kernel, then a copy of what it wrote on the other stream.
template <Broken B>
std::vector<float> copied() {
  const Program p;
  doubled<<<1, 256, 0, p.compute>>>(p.y, p.x);
  if (B == Broken::none) p.order(p.compute, p.comm);
  cudaMemcpyAsync(p.x, p.y, kBytes, cudaMemcpyDeviceToDevice, p.comm);
  return p.values(p.x);
}

// Two operations other than kernels.
template <Broken B>
std::vector<float> cleared() {
  const Program p;
  cudaMemsetAsync(p.x, 0, kBytes / 2, p.comm);
  if (B == Broken::none) p.order(p.comm, p.compute);
  cudaMemcpyAsync(p.y, p.x, kBytes, cudaMemcpyDeviceToDevice, p.compute);
  return p.values(p.y);
}

// To the host and back, on two streams.
template <Broken B>
std::vector<float> through_the_host() {
  const Program p;
  cudaMemcpyAsync(p.pinned, p.x, kBytes, cudaMemcpyDeviceToHost, p.comm);
  if (B == Broken::none) cudaStreamSynchronize(p.comm);
  cudaMemcpyAsync(p.y, p.pinned, kBytes, cudaMemcpyHostToDevice, p.compute);
  return p.values(p.y);
}

// The default stream waits for streams that block, and they for it; others do not.
template <Broken B>
std::vector<float> after_the_default_stream() {
  const Program p;
  cudaStream_t blocking = nullptr;
  cudaStreamCreate(&blocking);
  cudaMemset(p.x, 0, kBytes);
  doubled<<<1, 256, 0, B == Broken::none ? blocking : p.compute>>>(p.y, p.x);
  filled<<<1, 256>>>(p.x, 1.0f);
  cudaStreamDestroy(blocking);
  return p.values(p.y);
}

// Memory allocated and freed in the order of streams.
template <Broken B>
std::vector<float> allocated_in_order() {
  const Program p;
  float* z = nullptr;
  cudaMallocAsync(&z, kBytes, p.comm);
  if (B != Broken::used_before_allocation) p.order(p.comm, p.compute);
  filled<<<1, 256, 0, p.compute>>>(z, 5.0f);
  doubled<<<1, 256, 0, p.compute>>>(p.y, z);
  if (B != Broken::freed_too_early) p.order(p.compute, p.comm);
  cudaFreeAsync(z, p.comm);
  if (B == Broken::used_after_free) {
    p.order(p.comm, p.compute);
    doubled<<<1, 256, 0, p.compute>>>(p.y, z);
  }
  return p.values(p.y);
}

// The host may write to the source of a copy once it has waited for the copy.
template <Broken B>
std::vector<float> from_pinned() {
  const Program p;
  cudaMemcpyAsync(p.x, p.pinned, kBytes, cudaMemcpyHostToDevice, p.compute);
  cudaEventRecord(p.ready, p.compute);
  if (B == Broken::none)
    while (cudaEventQuery(p.ready) == cudaErrorNotReady) {
    }
  for (int i = 0; i < kSize; ++i) p.pinned[i] = 7.0f;
  doubled<<<1, 256, 0, p.compute>>>(p.y, p.x);
  return p.values(p.y);
}

std::vector<float> flag_of_another_stream() {
  const Program p;
  int* flag = nullptr;
  cudaMalloc(&flag, sizeof(int));
  cudaMemset(flag, 0, sizeof(int));
  cudaDeviceSynchronize();
  awaited<<<1, 1, 0, p.compute>>>(flag);
  raised<<<1, 1, 0, p.comm>>>(flag);
  return p.values(p.x);
}

}  // namespace

std::vector<StreamSample> correct_stream_samples() {
  return {{"handed_over", {}, {}, handed_over<Broken::none>},
          {"overwritten", {}, {}, overwritten<Broken::none>},
          {"copied", {}, {}, copied<Broken::none>},
          {"cleared", {}, {}, cleared<Broken::none>},
          {"through_the_host", {}, {}, through_the_host<Broken::none>},
          {"after_the_default_stream", {}, {}, after_the_default_stream<Broken::none>},
          {"allocated_in_order", {}, {}, allocated_in_order<Broken::none>},
          {"from_pinned", {}, {}, from_pinned<Broken::none>}};
}

std::vector<StreamSample> broken_stream_samples() {
  using enum FindingKind;
  return {
      {"read_too_early", {stream_race}, {"filled(", "doubled("}, handed_over<Broken::read_too_early>},
      {"record_too_early", {stream_race}, {"filled(", "doubled("}, handed_over<Broken::record_too_early>},
      {"written_too_early", {stream_race}, {"filled(", "doubled("}, overwritten<Broken::written_too_early>},
      {"copied_too_early",
       {stream_race},
       {"copy of 800 bytes", "doubled("},
       copied<Broken::copied_too_early>},
      {"cleared_too_late",
       {stream_race},
       {"memset of 400 bytes", "copy of 800 bytes"},
       cleared<Broken::cleared_too_late>},
      {"pinned_read_too_early",
       {stream_race},
       {"copy of 800 bytes", "pinned allocation"},
       through_the_host<Broken::pinned_read_too_early>},
      {"default_stream_not_waited_for",
       {stream_race},
       {"the default stream", "doubled("},
       after_the_default_stream<Broken::default_stream_not_waited_for>},
      // If the memory is freed before the other operation runs, the finding is about that.
      {"freed_too_early", {stream_race, use_after_free}, {}, allocated_in_order<Broken::freed_too_early>},
      {"used_after_free", {use_after_free}, {"doubled("}, allocated_in_order<Broken::used_after_free>},
      {"used_before_allocation",
       {stream_race},
       {"filled(", "allocation"},
       allocated_in_order<Broken::used_before_allocation>},
      {"pinned_source_changed",
       {host_changed_source},
       {"copy of 800 bytes"},
       from_pinned<Broken::pinned_source_changed>},
  };
}

StreamSample sample_that_needs_two_streams_at_once() {
  return {"flag_of_another_stream", {FindingKind::deadlock}, {"awaited("}, flag_of_another_stream};
}

}  // namespace flatshard::ptx_vm
