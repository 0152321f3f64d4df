#include "comm/staged_communicator.h"

#include <algorithm>

#include "runtime/arena.h"

namespace flatshard {
namespace {

// The aligned offset of a second tensor after the first.
int64_t behind(const Tensor& first) {
  return (first.bytes() + Arena::kAlignment - 1) / Arena::kAlignment * Arena::kAlignment;
}

}  // namespace

StagedCommunicator::StagedCommunicator(std::unique_ptr<Communicator> host)
    : Communicator(host->name(), host->rank(), host->size()),
      host_(std::move(host)),
      host_stream_(streams_.add("staging")) {}

void StagedCommunicator::reserve_workspace(Arena& pinned) {
  workspace_ = pinned.alloc(DType::u8, {planned_bytes_});
}

Tensor StagedCommunicator::workspace_for(Stream& stream, const Tensor& like, int64_t begin) {
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

void StagedCommunicator::do_all_gather(Stream& stream, const Collective& call,
                                       const std::vector<GatherPart>& parts) {
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

void StagedCommunicator::do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                                       const Tensor& sent) {
  const Tensor out = workspace_for(stream, sent), in = workspace_for(stream, received, behind(sent));
  if (stream.planning()) return;
  copy(stream, out, sent);
  stream.sync();
  host_->all_to_all(host_stream_, in, out, call.label);
  copy(stream, received, in);
}

void StagedCommunicator::do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                                           const Tensor& full) {
  const Tensor all = workspace_for(stream, full), mine = workspace_for(stream, shard, behind(full));
  if (stream.planning()) return;
  copy(stream, all, full);
  stream.sync();
  host_->reduce_scatter(host_stream_, mine, all, call.label);
  copy(stream, shard, mine);
}

void StagedCommunicator::do_send(Stream& stream, const Collective& call, const Tensor& t, int to) {
  const Tensor host = workspace_for(stream, t);
  if (stream.planning()) return;
  copy(stream, host, t);
  stream.sync();
  host_->send(host_stream_, host, to, call.label);
}

void StagedCommunicator::do_receive(Stream& stream, const Collective& call, const Tensor& t, int from) {
  const Tensor host = workspace_for(stream, t);
  if (stream.planning()) return;
  host_->receive(host_stream_, host, from, call.label);
  copy(stream, t, host);
}

void StagedCommunicator::do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) {
  const Tensor host = workspace_for(stream, t);
  if (stream.planning()) return;
  if (rank() == root) copy(stream, host, t);
  stream.sync();
  host_->broadcast(host_stream_, host, root, call.label);
  if (rank() != root) copy(stream, t, host);
}

}  // namespace flatshard
