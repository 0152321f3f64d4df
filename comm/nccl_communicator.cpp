#include "comm/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>
#include <optional>

#include <nccl.h>

#include "comm/watchdog.h"
#include "comm/world.h"
#include "runtime/cuda_check.h"

namespace flatshard {
namespace {

void nccl_check(ncclResult_t status, const char* what) {
  if (status != ncclSuccess) [[unlikely]]
    fail(str(what, ": ", ncclGetErrorString(status), "; ", ncclGetLastError(nullptr),
             "; NCCL_DEBUG=INFO tells more"));
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
    retire();
  }

  // As a Watchdog::Probe asks.
  std::string failure(std::chrono::seconds limit, Clock::duration suspended) {
    ncclResult_t status = ncclSuccess;
    ncclCommGetAsyncError(comm_, &status);
    const std::lock_guard lock(mutex_);
    cudaSetDevice(device_.index);
    retire();
    oldest_since_ = std::min(oldest_since_ + suspended, Clock::now());
    const std::string call = pending_.empty() ? "" : describe(pending_.front().call);
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

  // Calls of one communicator finish in order.
  void retire() {
    while (!pending_.empty() && cudaEventQuery(pending_.front().done) == cudaSuccess) {
      free_.push_back(pending_.front().done);
      pending_.pop_front();
      oldest_since_ = Clock::now();
    }
  }

  Device device_;
  ncclComm_t comm_;
  std::mutex mutex_;
  std::deque<Pending> pending_;
  std::vector<cudaEvent_t> free_;
  Clock::time_point oldest_since_;
};

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(const char* name, Device device, ncclComm_t comm, int rank, int size, Watchdog* watchdog)
      : Communicator(name, rank, size),
        comm_(comm),
        pending_calls_(device, comm),
        probe_(std::in_place, watchdog,
               [this](std::chrono::seconds limit, Watchdog::Clock::duration suspended) {
                 return pending_calls_.failure(limit, suspended);
               }) {}
  ~NcclCommunicator() override {
    probe_.reset();
    ncclCommDestroy(comm_);
  }

 private:
  void do_all_gather(Stream& stream, const Collective& call, const std::vector<GatherPart>& parts) override {
    if (stream.planning()) return;
    nccl_check(ncclGroupStart(), "ncclGroupStart");
    for (const auto& [full, shard] : parts)
      nccl_check(ncclAllGather(shard.data, full.data, static_cast<size_t>(shard.bytes()), ncclUint8, comm_,
                               cuda_stream(stream)),
                 "ncclAllGather");
    nccl_check(ncclGroupEnd(), "ncclGroupEnd");
    pending_calls_.add(cuda_stream(stream), call);
  }

  void do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                     const Tensor& sent) override {
    if (stream.planning()) return;
    nccl_check(ncclGroupStart(), "ncclGroupStart");
    for (int peer = 0; peer < size(); ++peer) {
      const Tensor out = part_of(sent, peer, size()), in = part_of(received, peer, size());
      const size_t bytes = static_cast<size_t>(out.bytes());
      nccl_check(ncclSend(out.data, bytes, ncclUint8, peer, comm_, cuda_stream(stream)), "ncclSend");
      nccl_check(ncclRecv(in.data, bytes, ncclUint8, peer, comm_, cuda_stream(stream)), "ncclRecv");
    }
    nccl_check(ncclGroupEnd(), "ncclGroupEnd");
    pending_calls_.add(cuda_stream(stream), call);
  }

  void do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                         const Tensor& full) override {
    if (stream.planning()) return;
    nccl_check(ncclReduceScatter(full.data, shard.data, static_cast<size_t>(shard.size()),
                                 nccl_type(shard.dtype), ncclSum, comm_, cuda_stream(stream)),
               "ncclReduceScatter");
    pending_calls_.add(cuda_stream(stream), call);
  }

  void do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) override {
    if (stream.planning()) return;
    nccl_check(ncclBroadcast(t.data, t.data, static_cast<size_t>(t.bytes()), ncclUint8, root, comm_,
                             cuda_stream(stream)),
               "ncclBroadcast");
    pending_calls_.add(cuda_stream(stream), call);
  }

  void do_send(Stream& stream, const Collective& call, const Tensor& t, int to) override {
    if (stream.planning()) return;
    nccl_check(ncclSend(t.data, static_cast<size_t>(t.bytes()), ncclUint8, to, comm_, cuda_stream(stream)),
               "ncclSend");
    pending_calls_.add(cuda_stream(stream), call);
  }

  void do_receive(Stream& stream, const Collective& call, const Tensor& t, int from) override {
    if (stream.planning()) return;
    nccl_check(ncclRecv(t.data, static_cast<size_t>(t.bytes()), ncclUint8, from, comm_, cuda_stream(stream)),
               "ncclRecv");
    pending_calls_.add(cuda_stream(stream), call);
  }

  static cudaStream_t cuda_stream(const Stream& stream) { return static_cast<cudaStream_t>(stream.native()); }

  ncclComm_t comm_;
  PendingCalls pending_calls_;
  std::optional<Watchdog::Probe> probe_;
};

std::string as_hex(const ncclUniqueId& id) {
  std::string text;
  for (const char c : id.internal) {
    constexpr char kDigits[] = "0123456789abcdef";
    const unsigned byte = static_cast<unsigned char>(c);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

ncclUniqueId from_hex(const std::string& text) {
  ncclUniqueId id;
  check(text.size() == 2 * sizeof id.internal, "an NCCL id of ", text.size(), " digits");
  for (size_t i = 0; i < sizeof id.internal; ++i)
    id.internal[i] = static_cast<char>(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return id;
}

}  // namespace

std::unique_ptr<Communicator> make_nccl_communicator(World& world, Device device, const char* name,
                                                     int color) {
  const double mine = color;
  const std::vector<double> colors = world.all_gather({&mine, 1}, "NCCL groups");
  int rank = 0, size = 0, leader = -1;
  for (int other = 0; other < world.size(); ++other) {
    if (colors[static_cast<size_t>(other)] != mine) continue;
    if (leader < 0) leader = other;
    if (other < world.rank()) ++rank;
    ++size;
  }
  std::string text;
  if (leader == world.rank()) {
    ncclUniqueId id;
    nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    text = as_hex(id);
  }
  const std::vector<std::string> ids = world.all_gather_texts(text, "NCCL ids");
  cuda_check(cudaSetDevice(device.index), "cudaSetDevice");
  ncclComm_t comm = nullptr;
  nccl_check(ncclCommInitRank(&comm, size, from_hex(ids[static_cast<size_t>(leader)]), rank),
             "ncclCommInitRank");
  return std::make_unique<NcclCommunicator>(name, device, comm, rank, size, world.watchdog());
}

}  // namespace flatshard
