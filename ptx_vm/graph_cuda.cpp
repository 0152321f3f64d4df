// The CUDA runtime on the machine: capture of streams, and graphs.

#include <unordered_set>

#include <cuda_runtime_api.h>

#include "ptx_vm/capture.h"
#include "ptx_vm/state.h"

namespace flatshard::ptx_vm {
namespace {

template <class Work>
cudaError_t attempt(Work&& work) {
  return static_cast<cudaError_t>(guarded(work));
}

// The object of a handle; an error if there is none.
template <class T>
class Objects {
 public:
  template <class Handle>
  void add(Handle* handle, T* object) {
    live_.insert(object);
    *handle = reinterpret_cast<Handle>(object);
  }
  T& of(void* handle) const {
    auto* object = static_cast<T*>(handle);
    check(live_.contains(object), "not a graph, or a destroyed one");
    return *object;
  }
  void destroy(void* handle) {
    T* const object = &of(handle);
    live_.erase(object);
    delete object;
  }

 private:
  std::unordered_set<T*> live_;
};

Objects<CapturedWork>& graphs() {
  static auto* const all = new Objects<CapturedWork>;
  return *all;
}
Objects<GraphLaunches>& executables() {
  static auto* const all = new Objects<GraphLaunches>;
  return *all;
}

}  // namespace

extern "C" {

// The mode selects which allocating calls are errors during the capture. The machine allows all of them.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return attempt([&] { begin_capture(queue_of(stream)); });
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  return attempt([&] { graphs().add(graph, new CapturedWork(end_capture(queue_of(stream)))); });
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  return attempt([&] {
    const auto& capture = queue_of(stream).captured.capture;
    *status = !capture             ? cudaStreamCaptureStatusNone
              : capture->is_broken ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
  });
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long flags) {
  *executable = nullptr;
  return attempt([&] {
    check(flags == 0, "a graph with flags ", flags);
    executables().add(executable, new GraphLaunches(graphs().of(graph)));
  });
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return attempt([&] {
    Queue& queue = queue_of(stream);
    refuse_captured(queue, "the launch of a graph, which the machine cannot capture,");
    executables().of(executable).launch(queue);
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return attempt([&] { graphs().destroy(graph); });
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return attempt([&] { executables().destroy(executable); });
}
}

}  // namespace flatshard::ptx_vm
