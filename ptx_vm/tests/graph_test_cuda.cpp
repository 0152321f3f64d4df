// Capture of streams on the machine, and graphs.

#include <string>
#include <thread>
#include <vector>

#include <cuda_runtime_api.h>

#include "ptx_vm/ptx_vm.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

constexpr WorkOrder kOrders[] = {WorkOrder::in_order, WorkOrder::comm_late, WorkOrder::comm_early,
                                 WorkOrder::random};

// Two streams, two events, and three numbers on the device.
class Pair {
 public:
  Pair() {
    cudaStreamCreateWithPriority(&compute, cudaStreamNonBlocking, 0);
    cudaStreamCreateWithPriority(&comm, cudaStreamNonBlocking, -5);
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&other, cudaEventDisableTiming);
    cudaMalloc(reinterpret_cast<void**>(&data), 3 * sizeof(int));
    cudaMemset(data, 0, 3 * sizeof(int));
    cudaDeviceSynchronize();
  }
  ~Pair() {
    cudaDeviceSynchronize();
    for (cudaEvent_t e : {event, other}) cudaEventDestroy(e);
    for (cudaStream_t s : {compute, comm}) cudaStreamDestroy(s);
    cudaFree(data);
    cudaGetLastError();
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  void copy(int to, int from, cudaStream_t stream) const {
    cudaMemcpyAsync(data + to, data + from, sizeof(int), cudaMemcpyDeviceToDevice, stream);
  }
  void set(int at, int byte, cudaStream_t stream) const {
    cudaMemsetAsync(data + at, byte, sizeof(int), stream);
  }
  int value(int at) const {
    int result = -1;
    cudaMemcpyAsync(&result, data + at, sizeof(int), cudaMemcpyDeviceToHost, compute);
    cudaStreamSynchronize(compute);
    return result & 0xff;
  }
  // comm joins the capture and copies 0 to 1; compute then copies 1 to 2, after it if it waits.
  void capture_two(bool waits) const {
    cudaStreamBeginCapture(compute, cudaStreamCaptureModeThreadLocal);
    cudaEventRecord(event, compute);
    cudaStreamWaitEvent(comm, event, 0);
    copy(1, 0, comm);
    cudaEventRecord(other, comm);
    if (waits) cudaStreamWaitEvent(compute, other, 0);
    copy(2, 1, compute);
    if (!waits) cudaStreamWaitEvent(compute, other, 0);
  }

  cudaStream_t compute = nullptr, comm = nullptr;
  cudaEvent_t event = nullptr, other = nullptr;
  int* data = nullptr;
};

cudaGraphExec_t ended(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  REQUIRE(cudaGraphInstantiateWithFlags(&executable, graph, 0) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
  return executable;
}

}  // namespace

TEST_CASE("captured work runs at each launch of its graph, in the order of streams and events") {
  for (const WorkOrder order : kOrders) {
    const ScopedOptions scope({.stream_order = order});
    Pair pair;
    pair.capture_two(true);
    cudaStreamCaptureStatus status{};
    CHECK(cudaStreamIsCapturing(pair.comm, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusActive);
    const cudaGraphExec_t graph = ended(pair.compute);
    CHECK(cudaStreamIsCapturing(pair.comm, &status) == cudaSuccess);
    CHECK(status == cudaStreamCaptureStatusNone);
    CHECK(pair.value(2) == 0);
    for (const int byte : {3, 5}) {
      pair.set(0, byte, pair.compute);
      CHECK(cudaGraphLaunch(graph, pair.compute) == cudaSuccess);
      CHECK(pair.value(2) == byte);
    }
    pair.set(0, 7, pair.compute);
    CHECK(cudaGraphLaunch(graph, pair.compute) == cudaSuccess);
    CHECK(cudaGraphLaunch(graph, pair.comm) == cudaSuccess);  // after the previous one
    cudaStreamSynchronize(pair.comm);
    CHECK(pair.value(2) == 7);
    CHECK(cudaGraphExecDestroy(graph) == cudaSuccess);
    CHECK(cudaGraphLaunch(graph, pair.compute) == cudaErrorInvalidValue);
    CHECK(take_findings().empty());
  }
}

TEST_CASE("a missing wait in a graph is a race in every order") {
  for (const WorkOrder order : kOrders) {
    const ScopedOptions scope({.stream_order = order});
    Pair pair;
    pair.capture_two(false);
    const cudaGraphExec_t graph = ended(pair.compute);
    cudaGraphLaunch(graph, pair.compute);
    cudaDeviceSynchronize();
    const std::vector<Finding> findings = take_findings();
    REQUIRE(findings.size() == 1);
    CHECK(findings[0].kind == FindingKind::stream_race);
    cudaGraphExecDestroy(graph);
  }
}

TEST_CASE("a graph is not ordered with work that its stream does not wait for") {
  Pair pair;
  pair.capture_two(true);
  const cudaGraphExec_t graph = ended(pair.compute);
  pair.set(0, 3, pair.comm);
  cudaGraphLaunch(graph, pair.compute);
  cudaDeviceSynchronize();
  const std::vector<Finding> findings = take_findings();
  REQUIRE(findings.size() == 1);
  CHECK(findings[0].kind == FindingKind::stream_race);
  cudaGraphExecDestroy(graph);
}

TEST_CASE("a call that cannot be captured is an error and invalidates the capture") {
  struct Call {
    const char* name;
    cudaError_t error;
    cudaError_t (*make)(Pair&);
  };
  static int on_host = 0;
  for (const Call& call : {
           Call{"a wait of the host for the stream", cudaErrorStreamCaptureUnsupported,
                [](Pair& p) { return cudaStreamSynchronize(p.compute); }},
           {"for one that takes part", cudaErrorStreamCaptureUnsupported,
            [](Pair& p) { return cudaStreamSynchronize(p.comm); }},
           {"for all", cudaErrorStreamCaptureUnsupported, [](Pair&) { return cudaDeviceSynchronize(); }},
           {"a query", cudaErrorStreamCaptureUnsupported, [](Pair& p) { return cudaStreamQuery(p.compute); }},
           {"a copy to memory that is not pinned", cudaErrorStreamCaptureUnsupported,
            [](Pair& p) { return cudaMemcpyAsync(&on_host, p.data, 4, cudaMemcpyDeviceToHost, p.compute); }},
           {"an event of work that is not captured", cudaErrorStreamCaptureIsolation,
            [](Pair& p) {
              cudaStream_t outside = nullptr;
              cudaStreamCreateWithFlags(&outside, cudaStreamNonBlocking);
              cudaEventRecord(p.event, outside);
              const cudaError_t error = cudaStreamWaitEvent(p.compute, p.event, 0);
              cudaStreamDestroy(outside);
              return error;
            }},
           {"an allocation", cudaErrorStreamCaptureUnsupported,
            [](Pair&) {
              void* data = nullptr;
              return cudaMalloc(&data, 16);
            }},
           {"of pinned memory", cudaErrorStreamCaptureUnsupported,
            [](Pair&) {
              void* data = nullptr;
              return cudaMallocHost(&data, 16);
            }},
           {"freeing", cudaErrorStreamCaptureUnsupported, [](Pair& p) { return cudaFree(p.data); }},
           {"the end by another stream", cudaErrorStreamCaptureUnmatched,
            [](Pair& p) {
              cudaGraph_t graph = nullptr;
              return cudaStreamEndCapture(p.comm, &graph);
            }},
       }) {
    CAPTURE(call.name);
    Pair pair;
    pair.capture_two(true);
    CHECK(call.make(pair) == call.error);
    CHECK(cudaMemsetAsync(pair.data, 0, 4, pair.compute) == cudaErrorStreamCaptureInvalidated);
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(pair.compute, &graph) == cudaErrorStreamCaptureInvalidated);
    CHECK(graph == nullptr);
    CHECK(pair.value(2) == 0);  // the streams still work
  }
}

TEST_CASE("another thread may allocate and free memory while a stream is captured") {
  Pair pair;
  pair.capture_two(true);
  std::thread([] {
    void* data = nullptr;
    CHECK(cudaMallocHost(&data, 16) == cudaSuccess);
    CHECK(cudaFreeHost(data) == cudaSuccess);
  }).join();
  CHECK(cudaGraphExecDestroy(ended(pair.compute)) == cudaSuccess);
}

TEST_CASE("work that the origin stream never waits for is an error at the end of the capture") {
  Pair pair;
  pair.capture_two(true);
  pair.set(0, 1, pair.comm);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(pair.compute, &graph) == cudaErrorStreamCaptureUnjoined);
  CHECK(cudaStreamEndCapture(pair.compute, &graph) == cudaErrorIllegalState);
}

TEST_CASE("an event last recorded in a capture cannot be used outside it") {
  Pair pair;
  pair.capture_two(true);
  CHECK(cudaEventQuery(pair.other) == cudaErrorCapturedEvent);
  const cudaGraphExec_t graph = ended(pair.compute);
  CHECK(cudaEventSynchronize(pair.other) == cudaErrorCapturedEvent);
  CHECK(cudaStreamWaitEvent(pair.comm, pair.other, 0) == cudaErrorCapturedEvent);
  cudaEventRecord(pair.other, pair.comm);
  CHECK(cudaEventSynchronize(pair.other) == cudaSuccess);
  cudaGraphExecDestroy(graph);
}

TEST_CASE("work on the default stream is an error while a blocking stream is captured") {
  Pair pair;
  cudaStream_t blocking = nullptr;
  cudaStreamCreate(&blocking);
  cudaStreamBeginCapture(pair.compute, cudaStreamCaptureModeThreadLocal);
  CHECK(cudaMemsetAsync(pair.data, 0, 4, nullptr) == cudaSuccess);
  CHECK(cudaGraphExecDestroy(ended(pair.compute)) == cudaSuccess);
  cudaStreamBeginCapture(blocking, cudaStreamCaptureModeThreadLocal);
  CHECK(cudaMemsetAsync(pair.data, 0, 4, nullptr) == cudaErrorStreamCaptureImplicit);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(blocking, &graph) == cudaErrorStreamCaptureInvalidated);
  cudaStreamDestroy(blocking);
}
