#pragma once
// The communicator of a single rank: every collective is a local copy or nothing.

#include "comm/communicator.h"
#include "runtime/memory.h"

namespace flatshard {

class SelfCommunicator : public Communicator {
 public:
  explicit SelfCommunicator(const char* name) : Communicator(name, 0, 1) {}

 private:
  void do_all_gather(Stream& stream, const Collective&, const std::vector<GatherPart>& parts) override {
    for (const auto& [full, shard] : parts)
      if (full.data != shard.data) copy(stream, full, shard);
  }
  void do_all_to_all(Stream& stream, const Collective&, const Tensor& received, const Tensor& sent) override {
    copy(stream, received, sent);
  }
  void do_reduce_scatter(Stream& stream, const Collective&, const Tensor& shard,
                         const Tensor& full) override {
    copy(stream, shard, full);
  }
  void do_broadcast(Stream&, const Collective&, const Tensor&, int) override {}
  // There is no peer: check_peer() refuses the call.
  void do_send(Stream&, const Collective&, const Tensor&, int) override {}
  void do_receive(Stream&, const Collective&, const Tensor&, int) override {}
  void do_exchange(Stream&, const Collective&, const Tensor&, const Tensor&, int) override {}
};

}  // namespace flatshard
