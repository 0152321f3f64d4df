// The CUDA runtime on the machine: streams and events. All work runs at the call, in the order the host gives
// it, so a stream is a name and an event is always past; time is counted in instructions of warps.

#include <set>

#include <cuda_runtime_api.h>

#include "tests/ptx_vm/ptx_vm.h"
#include "tests/ptx_vm/state.h"

namespace flatshard::ptx_vm {
namespace {

constexpr int kHighest = -5;
constexpr float kInstructionsPerMillisecond = 1e6f;

struct StreamObject {
  int priority;
};
struct EventObject {
  bool is_recorded = false;
  uint64_t instructions = 0;
};

cudaError_t done() { return static_cast<cudaError_t>(outcome(cudaSuccess)); }
StreamObject* stream_of(cudaStream_t stream) { return reinterpret_cast<StreamObject*>(stream); }
EventObject* event_of(cudaEvent_t event) { return reinterpret_cast<EventObject*>(event); }

}  // namespace

extern "C" {

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = kHighest;
  return done();
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  *stream = reinterpret_cast<cudaStream_t>(new StreamObject{priority});
  return done();
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream_of(stream);
  return done();
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream ? stream_of(stream)->priority : 0;
  return done();
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return done(); }
cudaError_t cudaStreamQuery(cudaStream_t) { return done(); }
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return done(); }

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = reinterpret_cast<cudaEvent_t>(new EventObject);
  return done();
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  *event_of(event) = {true, counters().warp_instructions};
  return done();
}
cudaError_t cudaEventQuery(cudaEvent_t) { return done(); }
cudaError_t cudaEventSynchronize(cudaEvent_t) { return done(); }
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const EventObject *a = event_of(begin), *b = event_of(end);
  if (!a->is_recorded || !b->is_recorded)
    return static_cast<cudaError_t>(outcome(cudaErrorInvalidResourceHandle, "the event was never recorded"));
  *milliseconds = static_cast<float>(b->instructions - a->instructions) / kInstructionsPerMillisecond;
  return done();
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event_of(event);
  return done();
}
}

}  // namespace flatshard::ptx_vm
