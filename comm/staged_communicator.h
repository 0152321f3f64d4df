#pragma once
// A communicator for device tensors that goes through host memory: it copies to pinned memory, calls a host
// communicator, and copies back. The host waits for each call, so nothing overlaps. It serves ranks that
// share a GPU, which NCCL does not support, and machines without NCCL.

#include <memory>

#include "comm/communicator.h"
#include "runtime/memory.h"

namespace flatshard {

class StagedCommunicator : public Communicator {
 public:
  explicit StagedCommunicator(std::unique_ptr<Communicator> host);
  void reserve_workspace(Arena& pinned) override;

 private:
  void do_all_gather(Stream& stream, const Collective& call, const std::vector<GatherPart>& parts) override;
  void do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                     const Tensor& sent) override;
  void do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                         const Tensor& full) override;
  void do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) override;
  void do_send(Stream& stream, const Collective& call, const Tensor& t, int to) override;
  void do_receive(Stream& stream, const Collective& call, const Tensor& t, int from) override;

  // A tensor like `like` at offset `behind` of the workspace. Waits for the earlier users of the workspace.
  // On a planning stream it only records the size.
  Tensor workspace_for(Stream& stream, const Tensor& like, int64_t behind = 0);

  std::unique_ptr<Communicator> host_;
  StreamGroup streams_{Device::cpu()};
  Stream& host_stream_;
  int64_t planned_bytes_ = 0;  // bytes of the largest call
  Tensor workspace_;
};

}  // namespace flatshard
