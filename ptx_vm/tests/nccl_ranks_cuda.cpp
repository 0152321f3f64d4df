// A program for mpirun that captures calls of NCCL in graphs, for nccl_test.cpp: nccl_ranks MODE
//   sums        every launch sums and gathers what the buffers hold then
//   unmatched   a launch waits until the other ranks launch the graph, too
//   early       destroys a communicator before the graph with its calls
//   broken      calls NCCL in a capture that another call has invalidated
// The exit code is 1 if a result is wrong.

#include <cstdio>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>

#include "ptx_vm/ptx_vm.h"

using namespace flatshard;

namespace {

constexpr int kSize = 5;  // elements of a rank's part

// Buffers on the device, two streams, and a graph in which the ranks sum `source` and gather the sums:
//   compute  source -> in            all -> result
//   comm                in -> out -> all
class Ranks {
 public:
  Ranks() {
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    ncclUniqueId id{};
    ncclGetUniqueId(&id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    works = ncclCommInitRankConfig(&nccl, size, id, rank, &config) == ncclSuccess;
    cudaStreamCreateWithPriority(&compute, cudaStreamNonBlocking, 0);
    cudaStreamCreateWithPriority(&comm, cudaStreamNonBlocking, -5);
    for (cudaEvent_t* event : {&ready, &gathered}) cudaEventCreateWithFlags(event, cudaEventDisableTiming);
    for (float** buffer : {&source, &in, &out, &all, &result, &other}) {
      cudaMalloc(reinterpret_cast<void**>(buffer), bytes());
      cudaMemset(*buffer, 0, bytes());
    }
    cudaDeviceSynchronize();
  }

  size_t bytes() const { return static_cast<size_t>(size) * kSize * sizeof(float); }

  void capture() {
    cudaStreamBeginCapture(compute, cudaStreamCaptureModeThreadLocal);
    cudaMemcpyAsync(in, source, bytes(), cudaMemcpyDeviceToDevice, compute);
    cudaEventRecord(ready, compute);
    cudaStreamWaitEvent(comm, ready, 0);
    expect(ncclReduceScatter(in, out, kSize, ncclFloat32, ncclSum, nccl, comm) == ncclSuccess, "a sum");
    expect(ncclAllGather(out, all, kSize, ncclFloat32, nccl, comm) == ncclSuccess, "a gather");
    cudaEventRecord(gathered, comm);
    cudaStreamWaitEvent(compute, gathered, 0);
    cudaMemcpyAsync(result, all, bytes(), cudaMemcpyDeviceToDevice, compute);
    cudaGraph_t captured = nullptr;
    expect(cudaStreamEndCapture(compute, &captured) == cudaSuccess, "the end of the capture");
    expect(cudaGraphInstantiateWithFlags(&graph, captured, 0) == cudaSuccess, "the graph");
    cudaGraphDestroy(captured);
  }

  // Element i is factor * (rank + 1) + i.
  void set_source(int factor) const {
    std::vector<float> values(bytes() / sizeof(float));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(factor * (rank + 1) + static_cast<int>(i));
    cudaMemcpy(source, values.data(), bytes(), cudaMemcpyHostToDevice);
    cudaDeviceSynchronize();  // streams that block none do not wait for the copy
  }
  void launch() {
    const cudaError_t status = cudaGraphLaunch(graph, compute);
    expect(status == cudaSuccess, cudaGetErrorString(status));
  }
  // Checks the sums of a source with this factor; 0: nothing has been summed.
  void expect_sums(int factor, const float* buffer, int parts) {
    std::vector<float> values(static_cast<size_t>(parts * kSize));
    cudaStreamSynchronize(compute);
    cudaStreamSynchronize(comm);
    cudaMemcpy(values.data(), buffer, values.size() * sizeof(float), cudaMemcpyDeviceToHost);
    const int first = parts == 1 ? rank * kSize : 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const int sum = factor * size * (size + 1) / 2 + size * (first + static_cast<int>(i));
      expect(values[i] == static_cast<float>(factor == 0 ? 0 : sum), "a summed value");
    }
  }
  void expect(bool holds, const char* what) {
    if (!holds && works) std::printf("rank %d: %s is wrong\n", rank, what);
    works = works && holds;
  }
  void end() {
    cudaGraphExecDestroy(graph);
    expect(ncclCommDestroy(nccl) == ncclSuccess, "the end of the communicator");
  }

  int rank = 0, size = 1;
  bool works = true;
  ncclComm_t nccl = nullptr;
  cudaStream_t compute = nullptr, comm = nullptr;
  cudaEvent_t ready = nullptr, gathered = nullptr;
  float *source = nullptr, *in = nullptr, *out = nullptr, *all = nullptr, *result = nullptr, *other = nullptr;
  cudaGraphExec_t graph = nullptr;
};

// Calls that are not captured use the same communicator between launches.
void sum_at_launches(Ranks& r) {
  r.set_source(7);
  r.capture();
  r.expect_sums(0, r.result, r.size);  // nothing has run
  for (const int factor : {1, 2, 5}) {
    r.set_source(factor);
    r.launch();
    r.expect_sums(factor, r.result, r.size);
    r.set_source(factor + 10);
    r.expect(ncclReduceScatter(r.source, r.other, kSize, ncclFloat32, ncclSum, r.nccl, r.comm) == ncclSuccess,
             "a sum between launches");
    r.expect_sums(factor + 10, r.other, 1);
  }
  r.set_source(3);
  r.launch();
  r.launch();  // after the first
  r.expect_sums(3, r.result, r.size);
  r.end();
}

void wait_for_partners(Ranks& r) {
  constexpr int kPolls = 2000;
  r.set_source(4);
  r.capture();
  if (r.rank == 0) {
    r.launch();
    for (int i = 0; i < kPolls; ++i)
      r.expect(cudaStreamQuery(r.compute) == cudaErrorNotReady, "a launch without partners");
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (r.rank != 0) r.launch();
  r.expect_sums(4, r.result, r.size);
  r.end();
}

void destroy_early(Ranks& r) {
  r.capture();
  ncclCommDestroy(r.nccl);
}

void call_in_broken_capture(Ranks& r) {
  cudaStreamBeginCapture(r.compute, cudaStreamCaptureModeThreadLocal);
  r.expect(cudaStreamSynchronize(r.compute) == cudaErrorStreamCaptureUnsupported, "a wait of the host");
  r.expect(ncclAllGather(r.out, r.all, kSize, ncclFloat32, r.nccl, r.compute) == ncclUnhandledCudaError,
           "a call in a broken capture");
  cudaGraph_t captured = nullptr;
  r.expect(cudaStreamEndCapture(r.compute, &captured) == cudaErrorStreamCaptureInvalidated, "its end");
  r.expect(ncclCommDestroy(r.nccl) == ncclSuccess, "the end of the communicator");
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const std::string mode = argc == 2 ? argv[1] : "";
  Ranks ranks;
  if (mode == "sums") sum_at_launches(ranks);
  if (mode == "unmatched") wait_for_partners(ranks);
  if (mode == "early") destroy_early(ranks);
  if (mode == "broken") call_in_broken_capture(ranks);
  for (const ptx_vm::Finding& finding : ptx_vm::take_findings()) ranks.expect(false, finding.text.c_str());
  MPI_Finalize();
  if (ranks.works && ranks.rank == 0) std::printf("%s: as expected on %d ranks\n", mode.c_str(), ranks.size);
  return ranks.works ? 0 : 1;
}
