// Selects the communicator back end by the location of the tensors.

#include <algorithm>

#include "build_config.h"
#include "comm/communicator.h"
#include "comm/nccl_communicator.h"
#include "comm/self_communicator.h"
#include "runtime/arena.h"
#include "runtime/check.h"
#include "runtime/memory.h"

namespace flatshard {
namespace {

// A communicator for device tensors that goes through host memory: it copies to pinned memory, calls a host
// communicator, and copies back. The host waits for each call, so nothing overlaps. It serves ranks that
// share a GPU, which NCCL does not support, and machines without NCCL.
class StagedCommunicator : public Communicator {
 public:
  explicit StagedCommunicator(std::unique_ptr<Communicator> host)
      : Communicator(host->name(), host->rank(), host->size()),
        host_(std::move(host)),
        host_stream_(streams_.add("staging")) {}
  void reserve_workspace(Arena& pinned) override { workspace_ = pinned.alloc(DType::u8, {planned_bytes_}); }

 private:
  void do_all_gather(Stream& stream, const Collective& call, const std::vector<GatherPart>& parts) override {
    std::vector<GatherPart> on_host;
    int64_t at = 0;
    for (const auto& [full, shard] : parts) {
      const Tensor all = workspace_for(stream, full, at);
      at += behind(full);
      if (!stream.planning()) on_host.push_back({all, part_of(all, rank(), size())});
    }
    if (stream.planning()) return;
    for (size_t i = 0; i < parts.size(); ++i)
      copy(stream, on_host[i].shard, parts[i].shard.view({parts[i].shard.size()}));
    stream.sync();
    host_->all_gather(host_stream_, on_host, call.label);
    for (size_t i = 0; i < parts.size(); ++i) copy(stream, parts[i].full, on_host[i].full);
  }
  void do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                     const Tensor& sent) override {
    stage(stream, sent, received,
          [&](const Tensor& out, const Tensor& in) { host_->all_to_all(host_stream_, in, out, call.label); });
  }
  void do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                         const Tensor& full) override {
    stage(stream, full, shard, [&](const Tensor& all, const Tensor& mine) {
      host_->reduce_scatter(host_stream_, mine, all, call.label);
    });
  }
  void do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) override {
    const bool sends = rank() == root;
    stage(stream, sends ? t : Tensor{}, sends ? Tensor{} : t, [&](const Tensor& out, const Tensor& in) {
      host_->broadcast(host_stream_, sends ? out : in, root, call.label);
    });
  }
  void do_send(Stream& stream, const Collective& call, const Tensor& t, int to) override {
    stage(stream, t, {},
          [&](const Tensor& out, const Tensor&) { host_->send(host_stream_, out, to, call.label); });
  }
  void do_receive(Stream& stream, const Collective& call, const Tensor& t, int from) override {
    stage(stream, {}, t,
          [&](const Tensor&, const Tensor& in) { host_->receive(host_stream_, in, from, call.label); });
  }

  void do_exchange(Stream& stream, const Collective& call, const Tensor& received, const Tensor& sent,
                   int peer) override {
    stage(stream, sent, received, [&](const Tensor& out, const Tensor& in) {
      host_->exchange(host_stream_, in, out, peer, call.label);
    });
  }

  // Calls call(out, in) with host copies of what is sent and received; one of them may be empty.
  template <class Call>
  void stage(Stream& stream, const Tensor& sent, const Tensor& received, const Call& call) {
    const Tensor out = workspace_for(stream, sent), in = workspace_for(stream, received, behind(sent));
    if (stream.planning()) return;
    if (!sent.empty()) copy(stream, out, sent);
    stream.sync();
    call(out, in);
    if (!received.empty()) copy(stream, received, in);
  }

  // A tensor like `like` at offset `begin` of the workspace. Waits for the earlier users of the workspace.
  // On a planning stream it only records the size.
  Tensor workspace_for(Stream& stream, const Tensor& like, int64_t begin = 0) {
    const int64_t end = begin + like.bytes();
    Tensor workspace{nullptr, like.dtype, like.shape, Device::cpu()};
    if (stream.planning()) {
      planned_bytes_ = std::max(planned_bytes_, end);
      return workspace;
    }
    check(end <= workspace_.bytes(), name(), ": a call needs ", end,
          " bytes of pinned memory, but the plan reserved ", workspace_.bytes());
    stream.sync();  // the copies of the previous call have read the workspace
    workspace.data = workspace_.as<uint8_t>() + begin;
    return workspace;
  }
  // The aligned offset of a second tensor after the first.
  static int64_t behind(const Tensor& first) {
    return (first.bytes() + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
  }

  std::unique_ptr<Communicator> host_;
  StreamSet streams_{Device::cpu()};
  Stream& host_stream_;
  int64_t planned_bytes_ = 0;  // bytes of the largest call
  Tensor workspace_;
};

// A communicator that accepts only planning streams.
class PlanningCommunicator : public Communicator {
 public:
  PlanningCommunicator(const char* name, int rank, int size) : Communicator(name, rank, size) {}

 private:
  void do_all_gather(Stream& stream, const Collective&, const std::vector<GatherPart>&) override {
    plan(stream);
  }
  void do_all_to_all(Stream& stream, const Collective&, const Tensor&, const Tensor&) override {
    plan(stream);
  }
  void do_reduce_scatter(Stream& stream, const Collective&, const Tensor&, const Tensor&) override {
    plan(stream);
  }
  void do_broadcast(Stream& stream, const Collective&, const Tensor&, int) override { plan(stream); }
  void do_send(Stream& stream, const Collective&, const Tensor&, int) override { plan(stream); }
  void do_receive(Stream& stream, const Collective&, const Tensor&, int) override { plan(stream); }
  void do_exchange(Stream& stream, const Collective&, const Tensor&, const Tensor&, int) override {
    plan(stream);
  }

  void plan(const Stream& stream) const {
    check(stream.planning(), name(), ": a planning communicator was called on a stream that runs work");
  }
};

}  // namespace

std::unique_ptr<Communicator> make_planning_communicator(const char* name, int rank, int size,
                                                         Transport transport) {
  if (size == 1) return std::make_unique<SelfCommunicator>(name);
  auto planning = std::make_unique<PlanningCommunicator>(name, rank, size);
  if (transport != Transport::staged) return planning;
  return std::make_unique<StagedCommunicator>(std::move(planning));
}

// The estimate uses the sizes of buffers in NCCL's sources: a ring receives on each channel into buffers of
// its three protocols, and messages within a host have four channels for each peer. Peers on other hosts
// share buffers. Copy engines need no buffers.
int64_t estimated_library_bytes(Transport transport, const Communicator& comm) {
  constexpr int64_t kMiB = int64_t{1} << 20, kBase = 16 * kMiB, kRing = kNcclChannels * 9 * kMiB,
                    kPeer = 4 * 4 * kMiB;
  constexpr int64_t kPeersOfHost = 7;
  const Communicator::Peers& peers = comm.peers();
  if (transport != Transport::nccl || comm.size() == 1) return 0;
  return kBase + (peers.all ? kRing : 0) + std::min(std::ssize(peers.from), kPeersOfHost) * kPeer;
}

std::unique_ptr<Communicator> make_communicator(World& world, const char* name, int color,
                                                Transport transport, Device device) {
  if constexpr (kNcclBuilt)
    if (transport == Transport::nccl) return make_nccl_communicator(world, device, name, color);
  check(transport != Transport::nccl, "communicator ", name, " on ", device, ": this build has no NCCL");
  std::unique_ptr<Communicator> host = make_host_communicator(world, name, color);
  if (transport == Transport::host) return host;
  if (host->size() == 1) return std::make_unique<SelfCommunicator>(name);
  return std::make_unique<StagedCommunicator>(std::move(host));
}

}  // namespace flatshard
