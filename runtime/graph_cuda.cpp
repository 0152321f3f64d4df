// Stream capture and graphs on a CUDA device.

#include "runtime/cuda.h"
#include "runtime/cuda_check.h"

namespace flatshard::cuda {

// Thread-local mode: CUDA calls of other threads, such as one that writes a checkpoint, do not disturb the
// capture.
void begin_capture(void* stream) {
  cuda_check(cudaStreamBeginCapture(static_cast<cudaStream_t>(stream), cudaStreamCaptureModeThreadLocal),
             "cudaStreamBeginCapture");
}

void* end_capture(void* stream) {
  cudaGraph_t graph = nullptr;
  cuda_check(cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &graph), "cudaStreamEndCapture");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t status = cudaGraphInstantiateWithFlags(&executable, graph, 0);
  cudaGraphDestroy(graph);
  cuda_check(status, "cudaGraphInstantiateWithFlags");
  return executable;
}

void abandon_capture(void* stream) noexcept {
  cudaGraph_t graph = nullptr;
  cudaStreamEndCapture(static_cast<cudaStream_t>(stream), &graph);
  if (graph) cudaGraphDestroy(graph);
  cudaGetLastError();
}

void launch_graph(void* graph, void* stream) {
  cuda_check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph), static_cast<cudaStream_t>(stream)),
             "cudaGraphLaunch");
}

void destroy_graph(void* graph) noexcept { cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph)); }

}  // namespace flatshard::cuda
