#pragma once
// The communicator of a single rank: every collective is a local copy or nothing.

#include "comm/communicator.h"

namespace flatshard {

class SelfCommunicator : public Communicator {
 public:
  explicit SelfCommunicator(const char* name) : Communicator(name, 0, 1) {}

 private:
  void do_all_gather(Stream& stream, const Collective& call, const std::vector<GatherPart>& parts) override;
  void do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                     const Tensor& sent) override;
  void do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                         const Tensor& full) override;
  void do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) override;
  void do_send(Stream& stream, const Collective& call, const Tensor& t, int to) override;
  void do_receive(Stream& stream, const Collective& call, const Tensor& t, int from) override;
};

}  // namespace flatshard
