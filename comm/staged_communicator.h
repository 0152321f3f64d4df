#pragma once
// A communicator for device tensors that talks through host memory: a copy to pinned memory, a communicator
// of the host, a copy back. The host waits for each call, so nothing overlaps; what it is for is ranks that
// share a GPU, which NCCL refuses, and machines without NCCL.

#include <memory>

#include "comm/communicator.h"
#include "runtime/memory.h"

namespace flatshard {

class StagedCommunicator : public Communicator {
 public:
  explicit StagedCommunicator(std::unique_ptr<Communicator> host);
  void reserve_workspace(Arena& pinned) override;

 private:
  void do_all_gather(Stream& stream, const Collective& call, const Tensor& full,
                     const Tensor& shard) override;
  void do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                     const Tensor& sent) override;
  void do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                         const Tensor& full) override;
  void do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) override;

  // The part of the room that begins `behind` so many bytes, for a tensor like this one, free of earlier use;
  // on a planning stream what it would be.
  Tensor workspace_for(Stream& stream, const Tensor& like, int64_t behind = 0);

  std::unique_ptr<Communicator> host_;
  StreamGroup streams_{Device::cpu()};
  Stream& host_stream_;
  int64_t planned_bytes_ = 0;  // of the largest call
  Tensor room_;
};

}  // namespace flatshard
