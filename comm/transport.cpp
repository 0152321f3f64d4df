// Selects the communicator back end by the location of the tensors.

#include <algorithm>

#include "build_config.h"
#include "comm/communicator.h"
#include "comm/nccl_communicator.h"
#include "comm/self_communicator.h"
#include "comm/staged_communicator.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

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
