#include "comm/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include <nccl.h>

#include "comm/nccl_windows.h"
#include "comm/self_communicator.h"
#include "comm/watchdog.h"
#include "comm/world.h"
#include "runtime/base64.h"
#include "runtime/cuda_check.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

constexpr std::chrono::milliseconds kBetweenPolls{1};
// The time that the thread that calls CUDA has to report a device fault before the watchdog does.
constexpr std::chrono::seconds kFaultGrace{10};

// Waits until a call of a non-blocking communicator, which returned `status`, is over: a split returns
// ncclSuccess while it is in progress. Counts polls instead of time, so that the time in which the process is
// suspended does not count.
void finish(ncclResult_t status, ncclComm_t comm, const char* what, std::chrono::seconds limit) {
  for (int64_t polls = limit / kBetweenPolls; status == ncclSuccess || status == ncclInProgress; --polls) {
    nccl_check(ncclCommGetAsyncError(comm, &status), "ncclCommGetAsyncError");
    if (status == ncclSuccess) return;
    check(polls > 0, what, " has taken more than parallel.timeout_seconds = ", limit.count(),
          ": the ranks cannot reach one another, or one of them is stuck; NCCL_DEBUG=INFO shows the network "
          "that NCCL uses, and NCCL_SOCKET_IFNAME selects it");
    std::this_thread::sleep_for(kBetweenPolls);
  }
  nccl_check(status, what);
}

// Memory that other ranks can be given access to.
void* allocate_shared(Device device, int64_t bytes) {
  cuda_check(cudaSetDevice(device.index), "cudaSetDevice");
  void* data = nullptr;
  const ncclResult_t status = ncclMemAlloc(&data, static_cast<size_t>(bytes));
  if (status == ncclSuccess) return data;
  cudaGetLastError();
  size_t free_bytes = 0, total_bytes = 0;
  cuda_check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  check(static_cast<size_t>(bytes) <= free_bytes, "out of memory on ", device, ": cannot allocate ", bytes,
        " bytes, ", free_bytes, " of ", total_bytes, " are free");
  nccl_check(status, "ncclMemAlloc");
  return nullptr;
}
void release_shared(void* data) noexcept { ncclMemFree(data); }

std::string version_of_nccl() {
  int code = 0;
  nccl_check(ncclGetVersion(&code), "ncclGetVersion");
  return str(code / 10000, '.', code / 100 % 100, '.', code % 100);
}

ncclDataType_t nccl_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return ncclFloat32;
    case DType::f16:
      return ncclFloat16;
    case DType::bf16:
      return ncclBfloat16;
    case DType::i32:
      return ncclInt32;
    default:
      return ncclUint8;
  }
}

// The calls that the device has not finished, and the start time of the oldest, for the watchdog.
class PendingCalls {
 public:
  using Clock = Watchdog::Clock;

  PendingCalls(Device device, ncclComm_t comm) : device_(device), comm_(comm) {}
  ~PendingCalls() {
    for (const Pending& p : pending_) cudaEventDestroy(p.done);
    for (cudaEvent_t event : free_) cudaEventDestroy(event);
  }
  PendingCalls(const PendingCalls&) = delete;
  PendingCalls& operator=(const PendingCalls&) = delete;

  void add(cudaStream_t stream, const Collective& call) {
    const std::lock_guard lock(mutex_);
    cudaEvent_t event = nullptr;
    if (free_.empty()) {
      cuda_check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    } else {
      event = free_.back();
      free_.pop_back();
    }
    cuda_check(cudaEventRecord(event, stream), "cudaEventRecord");
    if (pending_.empty()) oldest_since_ = Clock::now();
    pending_.push_back({event, call});
    cuda_check(retire(), call.verb);
  }

  // The answer to a Watchdog::Probe: why the run cannot continue, or "".
  std::string failure(std::chrono::seconds limit, Clock::duration suspended) {
    ncclResult_t status = ncclSuccess;
    ncclCommGetAsyncError(comm_, &status);
    const std::lock_guard lock(mutex_);
    cudaSetDevice(device_.index);
    const cudaError_t fault = retire();
    oldest_since_ = std::min(oldest_since_ + suspended, Clock::now());
    const std::string call = pending_.empty() ? "" : describe(pending_.front().call);
    if (fault != cudaSuccess) {
      if (!fault_since_) fault_since_ = Clock::now();
      return Clock::now() - *fault_since_ < kFaultGrace ? "" : describe_cuda_error(fault, call);
    }
    if (status != ncclSuccess && status != ncclInProgress)
      return str("NCCL: ", ncclGetErrorString(status), call.empty() ? "" : " in ", call);
    const auto seconds = std::chrono::duration<double>(Clock::now() - oldest_since_).count();
    if (pending_.empty() || seconds < static_cast<double>(limit.count())) return "";
    return str(call, " has not finished for ", static_cast<int64_t>(seconds),
               " s: a rank is stuck or gone; parallel.timeout_seconds sets how long to wait");
  }

 private:
  struct Pending {
    cudaEvent_t done;
    Collective call;
  };

  // Calls of one communicator finish in order. Returns the error if the device has failed.
  cudaError_t retire() {
    while (!pending_.empty()) {
      const cudaError_t status = cudaEventQuery(pending_.front().done);
      if (status == cudaErrorNotReady) {
        cudaGetLastError();  // clears the status, which the next check of a launch would report
        return cudaSuccess;
      }
      if (status != cudaSuccess) return status;
      free_.push_back(pending_.front().done);
      pending_.pop_front();
      oldest_since_ = Clock::now();
    }
    return cudaSuccess;
  }

  Device device_;
  ncclComm_t comm_;
  std::mutex mutex_;
  std::deque<Pending> pending_;
  std::vector<cudaEvent_t> free_;
  Clock::time_point oldest_since_;
  std::optional<Clock::time_point> fault_since_;
};

// The NCCL communicator of all ranks, from which the communicators of groups are split. NCCL starts the calls
// of all of them in the order in which this rank makes them, so ranks that agree on an order never deadlock.
class NcclRoot {
 public:
  NcclRoot(World& world, Device device);
  ~NcclRoot() { ncclCommDestroy(comm_); }  // may be in progress: NCCL completes it
  NcclRoot(const NcclRoot&) = delete;
  NcclRoot& operator=(const NcclRoot&) = delete;

  // The communicator of this rank's color; null with NCCL_SPLIT_NOCOLOR. All ranks must call it.
  ncclComm_t split(int color, int key) const;

 private:
  std::chrono::seconds limit_;
  ncclComm_t comm_ = nullptr;
};

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(const char* name, Device device, std::shared_ptr<NcclRoot> root, ncclComm_t comm, int rank,
                   int size, Watchdog* watchdog)
      : Communicator(name, rank, size),
        device_(device),
        root_(std::move(root)),
        comm_(comm),
        watchdog_(watchdog),
        pending_calls_(device, comm),
        probe_(std::in_place, watchdog,
               [this](std::chrono::seconds limit, Watchdog::Clock::duration suspended) {
                 return pending_calls_.failure(limit, suspended);
               }) {}
  ~NcclCommunicator() override {
    probe_.reset();
    ncclCommDestroy(comm_);
  }

  // Makes calls on registered memory, like the calls of the run, so that NCCL makes the connections that they
  // will use.
  void connect(Stream& stream) override {
    constexpr int64_t kPart = 4096;
    const Memory memory(device_, 2 * kPart * size(), Placement::shared);
    const Tensor both{memory.data(), DType::u8, {memory.bytes()}, device_};
    const Tensor sent = part_of(both, 0, 2), received = part_of(both, 1, 2);
    const std::shared_ptr<void> registered = register_memory(both);
    const Peers planned = peers();
    zero(stream, both);
    if (planned.all) all_gather(stream, received, part_of(received, rank(), size()), "connect");
    if (std::ssize(planned.to) == size() - 1 && std::ssize(planned.from) == size() - 1)
      all_to_all(stream, received, sent, "connect");
    else
      exchange(stream, received, sent, planned);
    stream.sync();
  }

  void graph_launches() override {
    if (captured_.bytes > 0) launching_.emplace(watchdog_, captured_);
  }
  void graph_launched(Stream& stream) override {
    launching_.reset();
    if (captured_.bytes > 0) pending_calls_.add(static_cast<cudaStream_t>(stream.native()), captured_);
  }

  std::string transfers() const override {
    return str("NCCL ", version_of_nccl(), ", ",
               windows_ > 0 && refused_ == 0
                   ? "on copy engines inside a host"
                   : str("in kernels on at most ", kNcclChannels,
                         " multiprocessors: it opens no window on the memory of all ranks"));
  }

 private:
  struct Registered {
    ncclWindow_t window = nullptr;
    void* handle = nullptr;  // used if there is no window
  };

  // Sends a message to each rank in with.to, and receives one from each rank in with.from.
  void exchange(Stream& stream, const Tensor& received, const Tensor& sent, const Peers& with) {
    if (with.to.empty() && with.from.empty()) return;
    enqueue(stream, {name(), "messages", "connect", sent.bytes(), sent.dtype}, [&](cudaStream_t on) {
      const size_t bytes = static_cast<size_t>(part_of(sent, 0, size()).bytes());
      for (const int peer : with.to)
        nccl_check(ncclSend(part_of(sent, peer, size()).data, bytes, ncclUint8, peer, comm_, on), "ncclSend");
      for (const int peer : with.from)
        nccl_check(ncclRecv(part_of(received, peer, size()).data, bytes, ncclUint8, peer, comm_, on),
                   "ncclRecv");
    });
  }

  void do_all_gather(Stream& stream, const Collective& call, const std::vector<GatherPart>& parts) override {
    enqueue(stream, call, [&](cudaStream_t on) {
      for (const auto& [full, shard] : parts)
        nccl_check(
            ncclAllGather(shard.data, full.data, static_cast<size_t>(shard.bytes()), ncclUint8, comm_, on),
            "ncclAllGather");
    });
  }

  void do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                     const Tensor& sent) override {
    enqueue(stream, call, [&](cudaStream_t on) { flatshard::all_to_all(received, sent, comm_, size(), on); });
  }

  void do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                         const Tensor& full) override {
    enqueue(stream, call, [&](cudaStream_t on) {
      nccl_check(ncclReduceScatter(full.data, shard.data, static_cast<size_t>(shard.size()),
                                   nccl_type(shard.dtype), ncclSum, comm_, on),
                 "ncclReduceScatter");
    });
  }

  void do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) override {
    enqueue(stream, call, [&](cudaStream_t on) {
      nccl_check(ncclBroadcast(t.data, t.data, static_cast<size_t>(t.bytes()), ncclUint8, root, comm_, on),
                 "ncclBroadcast");
    });
  }

  void do_send(Stream& stream, const Collective& call, const Tensor& t, int to) override {
    enqueue(stream, call, [&](cudaStream_t on) {
      nccl_check(ncclSend(t.data, static_cast<size_t>(t.bytes()), ncclUint8, to, comm_, on), "ncclSend");
    });
  }

  void do_receive(Stream& stream, const Collective& call, const Tensor& t, int from) override {
    enqueue(stream, call, [&](cudaStream_t on) {
      nccl_check(ncclRecv(t.data, static_cast<size_t>(t.bytes()), ncclUint8, from, comm_, on), "ncclRecv");
    });
  }

  void do_exchange(Stream& stream, const Collective& call, const Tensor& received, const Tensor& sent,
                   int peer) override {
    const auto bytes = [](const Tensor& t) { return static_cast<size_t>(t.bytes()); };
    enqueue(stream, call, [&](cudaStream_t on) {
      nccl_check(ncclSend(sent.data, bytes(sent), ncclUint8, peer, comm_, on), "ncclSend");
      nccl_check(ncclRecv(received.data, bytes(received), ncclUint8, peer, comm_, on), "ncclRecv");
    });
  }

  void* do_register(const Tensor& memory) override {
    auto registered = std::make_unique<Registered>();
    registered->window = open_window(comm_, memory);
    ++(registered->window ? windows_ : refused_);
    if (!registered->window)  // network cards and peers may still use the memory
      nccl_check(
          ncclCommRegister(comm_, memory.data, static_cast<size_t>(memory.bytes()), &registered->handle),
          "ncclCommRegister");
    return registered.release();
  }
  void do_deregister(void* handle) noexcept override {
    const std::unique_ptr<Registered> registered(static_cast<Registered*>(handle));
    if (registered->window)
      close_window(comm_, registered->window);
    else
      ncclCommDeregister(comm_, registered->handle);
  }

  // Enqueues NCCL calls as one group. A communicator's first call connects to the other ranks, and blocks
  // until they connect too. A captured group gets no pending call: an event that was recorded in
  // a capture cannot be queried, and the group runs in every launch. graph_launched() adds that.
  template <class Calls>
  void enqueue(Stream& stream, const Collective& call, const Calls& calls) {
    if (stream.planning()) return;
    const InFlight flight(watchdog_, call);
    nccl_check(ncclGroupStart(), "ncclGroupStart");
    calls(static_cast<cudaStream_t>(stream.native()));
    nccl_check(ncclGroupEnd(), "ncclGroupEnd");
    stream.launched();
    if (stream.capturing())
      captured_.bytes = std::max(captured_.bytes, call.bytes);
    else
      pending_calls_.add(static_cast<cudaStream_t>(stream.native()), call);
  }

  Device device_;
  std::shared_ptr<NcclRoot> root_;
  ncclComm_t comm_;
  Watchdog* watchdog_;
  int windows_ = 0, refused_ = 0;  // registrations with and without a window
  // What stands for the calls in a graph, with the size of the largest; no bytes: none has been captured.
  Collective captured_{name(), "replay", "captured calls", 0, DType::u8};
  std::optional<InFlight> launching_;
  PendingCalls pending_calls_;
  std::optional<Watchdog::Probe> probe_;
};

NcclRoot::NcclRoot(World& world, Device device) : limit_(world.collective_limit()) {
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);  // kernels start in the order of the calls
  ncclUniqueId id{};
  if (world.rank() == 0) nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  const std::string mine = to_base64({id.internal, sizeof id.internal});
  const std::string first = *from_base64(world.all_gather_texts(mine, "the NCCL id").front());
  first.copy(id.internal, sizeof id.internal);
  cuda_check(cudaSetDevice(device.index), "cudaSetDevice");
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const ncclResult_t status = ncclCommInitRankConfig(&comm_, world.size(), id, world.rank(), &config);
  finish(status, comm_, "the initialization of NCCL", limit_);
  share_memory_with({allocate_shared, release_shared});
}

ncclComm_t NcclRoot::split(int color, int key) const {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 1;  // a non-blocking communicator would start a thread for every call
  config.splitShare = 0;
  config.maxCTAs = kNcclChannels;
  prefer_copy_engines(config);
  ncclComm_t part = nullptr;
  const ncclResult_t status = ncclCommSplit(comm_, color, key, &part, &config);
  finish(status, comm_, "the split of an NCCL communicator", limit_);
  return part;
}

// The root for all communicators that live at the same time. All ranks create and destroy communicators
// alike.
std::shared_ptr<NcclRoot> root_of(World& world, Device device) {
  static std::weak_ptr<NcclRoot> current;
  std::shared_ptr<NcclRoot> root = current.lock();
  if (!root) current = root = std::make_shared<NcclRoot>(world, device);
  return root;
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(World& world, Device device, const char* name,
                                                     int color) {
  const double mine = color;
  const std::vector<double> colors = world.all_gather({&mine, 1}, "NCCL groups");
  const auto size_of_group = [&](double c) { return std::count(colors.begin(), colors.end(), c); };
  const bool all_alone =
      std::all_of(colors.begin(), colors.end(), [&](double c) { return size_of_group(c) == 1; });
  if (all_alone) return std::make_unique<SelfCommunicator>(name);
  const int size = static_cast<int>(size_of_group(mine));
  const int rank = static_cast<int>(std::count(colors.begin(), colors.begin() + world.rank(), mine));
  const std::shared_ptr<NcclRoot> root = root_of(world, device);
  const ncclComm_t comm = root->split(size == 1 ? NCCL_SPLIT_NOCOLOR : color, world.rank());
  if (size == 1) return std::make_unique<SelfCommunicator>(name);
  return std::make_unique<NcclCommunicator>(name, device, root, comm, rank, size, world.watchdog());
}

}  // namespace flatshard
