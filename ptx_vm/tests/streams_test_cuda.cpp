// Streams, events and copies on the machine: their order, and when the host waits.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

#include "ptx_vm/counts.h"
#include "ptx_vm/ptx_vm.h"
#include "ptx_vm/state.h"
#include "ptx_vm/streams.h"
#include "tests/test.h"

using namespace flatshard;
using namespace flatshard::ptx_vm;

namespace {

// Streams with host functions that log when they run.
class Log {
 public:
  explicit Log(WorkOrder order, uint64_t seed = 1) : scope_({.seed = seed, .stream_order = order}) {
    cudaStreamCreateWithPriority(&compute, cudaStreamNonBlocking, 0);
    cudaStreamCreateWithPriority(&comm, cudaStreamNonBlocking, -5);
    cudaEventCreate(&event);
  }
  ~Log() {
    cudaDeviceSynchronize();
    cudaEventDestroy(event);
    cudaStreamDestroy(compute);
    cudaStreamDestroy(comm);
    CHECK(take_findings().empty());
  }
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  void note(cudaStream_t stream, char what) {
    notes_.push_back(std::make_unique<Note>(Note{this, what}));
    const auto write = [](void* data) {
      const auto* note = static_cast<const Note*>(data);
      note->log->text += note->what;
    };
    CHECK(cudaLaunchHostFunc(stream, write, notes_.back().get()) == cudaSuccess);
  }

  cudaStream_t compute = nullptr, comm = nullptr;
  cudaEvent_t event = nullptr;
  std::string text;  // in the order they ran

 private:
  struct Note {
    Log* log;
    char what;
  };
  ScopedOptions scope_;
  std::vector<std::unique_ptr<Note>> notes_;
};

// a and b on compute, A and B on comm, and b after A.
void give_four(Log& log) {
  log.note(log.compute, 'a');
  log.note(log.comm, 'A');
  cudaEventRecord(log.event, log.comm);
  cudaStreamWaitEvent(log.compute, log.event, 0);
  log.note(log.compute, 'b');
  log.note(log.comm, 'B');
}

constexpr WorkOrder kOrders[] = {WorkOrder::in_order, WorkOrder::comm_late, WorkOrder::comm_early,
                                 WorkOrder::random};

}  // namespace

TEST_CASE("each stream order runs work when it should") {
  const auto text_of = [](WorkOrder order, bool waits) {
    Log log(order);
    give_four(log);
    if (waits) cudaStreamSynchronize(log.compute);
    const std::string before_end = log.text;
    cudaDeviceSynchronize();
    return before_end + ' ' + log.text;
  };
  CHECK(text_of(WorkOrder::in_order, false) == "aAbB aAbB");
  CHECK(text_of(WorkOrder::comm_late, false) == " aAbB");
  CHECK(text_of(WorkOrder::comm_late, true) == "aAb aAbB");
  CHECK(text_of(WorkOrder::comm_early, false) == "AB ABab");
  CHECK(text_of(WorkOrder::comm_early, true) == "ABab ABab");
}

TEST_CASE("the random order respects streams and events, and depends only on its seed") {
  std::vector<std::string> seen;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const auto run = [&] {
      Log log(WorkOrder::random, seed);
      give_four(log);
      cudaDeviceSynchronize();
      return log.text;
    };
    const std::string text = run();
    CAPTURE(text);
    CHECK(run() == text);
    CHECK(text.size() == 4);
    CHECK(text.find('a') < text.find('b'));
    CHECK(text.find('A') < text.find('B'));
    CHECK(text.find('A') < text.find('b'));
    if (std::find(seen.begin(), seen.end(), text) == seen.end()) seen.push_back(text);
  }
  CHECK(seen.size() >= 4);  // of 5
}

TEST_CASE("work in flight delays its stream and no other, in every stream order") {
  for (const WorkOrder order : kOrders) {
    Log log(order);
    bool has_arrived = false;
    streams().enqueue(queue_of(log.comm), "an exchange",
                      [&](Activity&) { streams().stay_until([&] { return has_arrived; }); });
    log.note(log.comm, 'A');
    cudaEventRecord(log.event, log.comm);
    log.note(log.compute, 'a');
    cudaStreamSynchronize(log.compute);
    CHECK(log.text == "a");
    CHECK(cudaEventQuery(log.event) == cudaErrorNotReady);
    cudaGetLastError();  // clears it
    has_arrived = true;
    cudaStreamWaitEvent(log.compute, log.event, 0);
    log.note(log.compute, 'b');
    cudaStreamSynchronize(log.compute);
    CHECK(log.text == "aAb");
  }
}

TEST_CASE("an explicit role overrides the role from the priority") {
  Log log(WorkOrder::comm_early);
  set_role(log.compute, WorkRole::comm);
  set_role(log.comm, WorkRole::compute);
  give_four(log);
  CHECK(log.text == "a");
}

TEST_CASE("a wait keeps the recorded position, and waiting for an unrecorded event does nothing") {
  Log log(WorkOrder::comm_late);
  cudaStreamWaitEvent(log.compute, log.event, 0);
  log.note(log.comm, 'A');
  cudaEventRecord(log.event, log.comm);
  cudaStreamWaitEvent(log.compute, log.event, 0);
  log.note(log.comm, 'B');
  cudaEventRecord(log.event, log.comm);
  log.note(log.compute, 'a');
  cudaStreamSynchronize(log.compute);
  CHECK(log.text == "Aa");
  cudaEventSynchronize(log.event);
  CHECK(log.text == "AaB");
}

TEST_CASE("every unsuccessful query runs one operation") {
  Log log(WorkOrder::comm_late);
  log.note(log.comm, 'A');
  log.note(log.comm, 'B');
  cudaEventRecord(log.event, log.comm);
  CHECK(cudaStreamQuery(log.comm) == cudaErrorNotReady);
  CHECK(log.text == "A");
  CHECK(cudaEventQuery(log.event) == cudaErrorNotReady);
  CHECK(log.text == "AB");
  CHECK(cudaEventQuery(log.event) == cudaErrorNotReady);
  CHECK(cudaEventQuery(log.event) == cudaSuccess);
  CHECK(cudaStreamQuery(log.comm) == cudaSuccess);
  CHECK(cudaGetLastError() == cudaErrorNotReady);
  CHECK(cudaGetLastError() == cudaSuccess);
}

TEST_CASE("the default stream and blocking streams wait for each other") {
  Log log(WorkOrder::comm_late);
  cudaStream_t blocking = nullptr;
  cudaStreamCreate(&blocking);
  log.note(log.compute, 'x');  // does not block
  log.note(blocking, 'a');
  log.note(nullptr, 'b');
  log.note(blocking, 'c');
  cudaStreamSynchronize(blocking);
  CHECK(log.text == "abc");
  cudaStreamDestroy(blocking);
}

TEST_CASE("a destroyed stream still runs its work, and its handle becomes invalid") {
  Log log(WorkOrder::comm_late);
  cudaStream_t stream = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  log.note(stream, 'a');
  cudaStreamDestroy(stream);
  CHECK(cudaStreamSynchronize(stream) == cudaErrorInvalidResourceHandle);
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  cudaDeviceSynchronize();
  CHECK(log.text == "a");
}

TEST_CASE("a host function that calls CUDA is an error") {
  for (const WorkOrder order : kOrders) {
    Log log(order);
    cudaError_t status = cudaSuccess;
    const auto call = [](void* data) { *static_cast<cudaError_t*>(data) = cudaDeviceSynchronize(); };
    cudaLaunchHostFunc(log.compute, call, &status);
    cudaDeviceSynchronize();
    CHECK(status == cudaErrorNotPermitted);
    cudaGetLastError();
  }
}

TEST_CASE("a copy reads pinned memory when it runs, pageable memory at the call") {
  Log log(WorkOrder::comm_late);
  int *pinned = nullptr, *device = nullptr, pageable = 1;
  cudaMallocHost(reinterpret_cast<void**>(&pinned), sizeof(int));
  cudaMalloc(reinterpret_cast<void**>(&device), 2 * sizeof(int));
  const auto set = [](void* data) { *static_cast<int*>(data) = 5; };
  cudaLaunchHostFunc(log.compute, set, pinned);
  cudaMemcpyAsync(device, pinned, sizeof(int), cudaMemcpyHostToDevice, log.compute);
  cudaMemcpyAsync(device + 1, &pageable, sizeof(int), cudaMemcpyHostToDevice, log.compute);
  pageable = 2;
  int result[2] = {};
  // To memory that is not pinned, the call returns when all is done.
  cudaMemcpyAsync(result, device, sizeof(result), cudaMemcpyDeviceToHost, log.compute);
  CHECK(result[0] == 5);
  CHECK(result[1] == 1);
  cudaFree(device);
  cudaFreeHost(pinned);
}

TEST_CASE("cudaFree waits for all streams, cudaFreeAsync does not") {
  Log log(WorkOrder::comm_late);
  void *a = nullptr, *b = nullptr;
  cudaMalloc(&a, 4);
  cudaMalloc(&b, 4);
  log.note(log.comm, 'A');
  cudaFreeAsync(a, log.comm);
  CHECK(log.text.empty());
  cudaFree(b);
  CHECK(log.text == "A");
  CHECK(cudaMemset(a, 0, 4) == cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST_CASE("the time between events counts the work between them, reproducibly") {
  const auto measure = [] {
    Log log(WorkOrder::comm_late);
    cudaEvent_t end = nullptr;
    cudaEventCreate(&end);
    void* data = nullptr;
    cudaMalloc(&data, 1 << 20);
    cudaEventRecord(log.event, log.compute);
    cudaMemsetAsync(data, 0, 1 << 20, log.compute);
    cudaEventRecord(end, log.compute);
    float milliseconds = -1;
    CHECK(cudaEventElapsedTime(&milliseconds, log.event, end) == cudaErrorNotReady);
    cudaStreamSynchronize(log.compute);
    CHECK(cudaEventElapsedTime(&milliseconds, log.event, end) == cudaSuccess);
    cudaEventDestroy(end);
    cudaFree(data);
    cudaGetLastError();
    return milliseconds;
  };
  CHECK(measure() == doctest::Approx(1.048576));
  CHECK(measure() == measure());
}

TEST_CASE("2D copies touch only their rows, and a copy of the wrong kind is an error") {
  for (const WorkOrder order : kOrders) {
    Log log(order);
    unsigned char *device = nullptr, rows[3][4] = {{1, 2, 3, 4}, {5, 6, 7, 8}, {9, 10, 11, 12}};
    cudaMalloc(reinterpret_cast<void**>(&device), 24);
    cudaMemsetAsync(device, 0xee, 24, log.compute);
    cudaMemcpy2DAsync(device, 8, rows, 4, 2, 3, cudaMemcpyHostToDevice, log.compute);
    cudaMemset2DAsync(device + 2, 8, 7, 1, 2, log.compute);
    unsigned char result[24];
    cudaMemcpyAsync(result, device, 24, cudaMemcpyDefault, log.compute);
    const std::vector<unsigned char> expected{1, 2,  7,    0xee, 0xee, 0xee, 0xee, 0xee,
                                              5, 6,  7,    0xee, 0xee, 0xee, 0xee, 0xee,
                                              9, 10, 0xee, 0xee, 0xee, 0xee, 0xee, 0xee};
    CHECK(std::vector<unsigned char>(result, result + 24) == expected);
    CHECK(cudaMemcpyAsync(result, device, 24, cudaMemcpyHostToDevice, log.compute) ==
          cudaErrorInvalidMemcpyDirection);
    CHECK(cudaMemcpyAsync(nullptr, nullptr, 0, cudaMemcpyHostToDevice, log.compute) == cudaSuccess);
    cudaGetLastError();
    cudaFree(device);
  }
}

TEST_CASE("copies and fills count as launches, with the device memory that they access") {
  constexpr size_t kBytes = 256;
  unsigned char *a = nullptr, *b = nullptr;
  cudaMalloc(reinterpret_cast<void**>(&a), kBytes);
  cudaMalloc(reinterpret_cast<void**>(&b), kBytes);
  const std::vector<unsigned char> on_host(kBytes);
  const Counts counts = counts_of([&] {
    cudaMemset(a, 0, kBytes);
    cudaMemcpy(b, a, kBytes, cudaMemcpyDeviceToDevice);
    cudaMemcpy(b, on_host.data(), kBytes, cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();
  });
  CHECK(counts.copies() == 3);
  CHECK(counts.launches() == 3);
  CHECK(counts.launch_bytes() == kBytes + 2 * kBytes + kBytes);
  CHECK(counts.touched_bytes() == 0);  // by kernels
  cudaFree(a);
  cudaFree(b);
  CHECK(take_findings().empty());
}
