// The CUDA runtime on the machine: events. Time is counted in instructions of warps and bytes copied, so it
// is the same in every run of one order.

#include <memory>
#include <unordered_set>

#include <cuda_runtime_api.h>

#include "ptx_vm/capture.h"
#include "ptx_vm/state.h"
#include "ptx_vm/streams.h"

namespace flatshard::ptx_vm {
namespace {

constexpr float kTicksPerMillisecond = 1e6f;

struct EventObject {
  bool is_recorded = false, is_timed = true;
  Milestone milestone{};
  std::shared_ptr<uint64_t> time{};  // of the last record, once it has run
  CapturedPoint captured{};          // where that was captured
};

std::unordered_set<EventObject*>& live_events() {
  static auto* const all = new std::unordered_set<EventObject*>;
  return *all;
}

EventObject& event_of(cudaEvent_t handle) {
  auto* event = reinterpret_cast<EventObject*>(handle);
  if (!live_events().contains(event))
    throw CallError(cudaErrorInvalidResourceHandle, "not an event, or a destroyed one");
  return *event;
}

void refuse_captured(const EventObject& event) {
  if (event.captured.capture)
    throw CallError(cudaErrorCapturedEvent, "the event was last recorded by a captured stream");
}

template <class Work>
cudaError_t attempt(Work&& work) {
  return static_cast<cudaError_t>(guarded(work));
}

}  // namespace

extern "C" {

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return attempt([&] {
    check((flags & ~unsigned{cudaEventBlockingSync | cudaEventDisableTiming}) == 0, "an event with flags ",
          flags);
    auto* made = new EventObject;
    made->is_timed = !(flags & cudaEventDisableTiming);
    live_events().insert(made);
    *event = reinterpret_cast<cudaEvent_t>(made);
  });
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return attempt([&] {
    EventObject* object = &event_of(event);
    live_events().erase(object);
    delete object;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return attempt([&] {
    EventObject& e = event_of(event);
    Queue& queue = queue_of(stream);
    e.captured = queue.captured;
    e.is_recorded = true;
    if (e.captured.capture) return;
    auto time = std::make_shared<uint64_t>(0);
    e.milestone = streams().enqueue(queue, "record", [time](Activity&) {
      *time = counters().warp_instructions + counters().copied_bytes + product_ticks();
    });
    e.time = std::move(time);
  });
}

// The current record of the event; an event that was never recorded delays nothing.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return attempt([&] {
    check(flags == cudaEventWaitDefault, "a wait with flags ", flags);
    const EventObject& e = event_of(event);
    Queue& queue = queue_of(stream);
    if (!e.is_recorded) return;
    if (e.captured.capture) return follow(queue, e.captured);
    refuse_from_outside(queue);
    streams().wait(queue, e.milestone);
  });
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return attempt([&] {
    const EventObject& e = event_of(event);
    refuse_captured(e);
    if (e.is_recorded) streams().finish(e.milestone);
  });
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return attempt([&] {
    const EventObject& e = event_of(event);
    refuse_captured(e);
    if (e.is_recorded && !streams().poll(e.milestone))
      throw CallError(cudaErrorNotReady, "the event has not been reached");
  });
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  return attempt([&] {
    const EventObject &a = event_of(begin), &b = event_of(end);
    refuse_captured(a);
    refuse_captured(b);
    if (!a.is_recorded || !b.is_recorded || !a.is_timed || !b.is_timed)
      throw CallError(cudaErrorInvalidResourceHandle, "the event was never recorded, or has timing disabled");
    if (!streams().is_done(a.milestone) || !streams().is_done(b.milestone))
      throw CallError(cudaErrorNotReady, "the event has not been reached");
    *milliseconds = static_cast<float>(static_cast<int64_t>(*b.time - *a.time)) / kTicksPerMillisecond;
  });
}
}

}  // namespace flatshard::ptx_vm
