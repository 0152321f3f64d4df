#include "comm/staged_communicator.h"

namespace flatshard {

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> host)
    : Communicator(host->name(), host->rank(), host->size()),
      host_(std::move(host)),
      host_stream_(streams_.add("staging")) {}

Tensor StagedCommunicator::room(int which, Stream& stream, const Tensor& like) {
  stream.sync();  // the copies of the call before have read it
  Memory& memory = rooms_[which];
  if (memory.bytes() < like.bytes()) {
    memory = Memory();
    memory = Memory(Device::cpu(), like.bytes(), Placement::pinned);
  }
  return {memory.data(), like.dtype, like.shape, Device::cpu()};
}

void StagedCommunicator::do_all_gather(Stream& stream, const Collective& call, const Tensor& full,
                                       const Tensor& shard) {
  if (stream.planning()) return;
  const Tensor all = room(0, stream, full), mine = part_of(all, rank(), size());
  copy(stream, mine, shard.view({shard.size()}));
  stream.sync();
  host_->all_gather(host_stream_, all, mine, call.whom);
  copy(stream, full, all);
}

void StagedCommunicator::do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                                       const Tensor& sent) {
  if (stream.planning()) return;
  const Tensor out = room(0, stream, sent), in = room(1, stream, received);
  copy(stream, out, sent);
  stream.sync();
  host_->all_to_all(host_stream_, in, out, call.whom);
  copy(stream, received, in);
}

void StagedCommunicator::do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                                           const Tensor& full) {
  if (stream.planning()) return;
  const Tensor all = room(0, stream, full), mine = room(1, stream, shard);
  copy(stream, all, full);
  stream.sync();
  host_->reduce_scatter(host_stream_, mine, all, call.whom);
  copy(stream, shard, mine);
}

void StagedCommunicator::do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) {
  if (stream.planning()) return;
  const Tensor host = room(0, stream, t);
  if (rank() == root) copy(stream, host, t);
  stream.sync();
  host_->broadcast(host_stream_, host, root, call.whom);
  if (rank() != root) copy(stream, t, host);
}

}  // namespace flatshard
