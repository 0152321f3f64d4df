#pragma once
// A communicator for one rank of many without the other ranks: their data are copies of this rank's data, and
// a received message is a function of its number. So a test can run as one of any number of ranks in one
// process and log every call.

#include <string>

#include "comm/communicator.h"

namespace flatshard::test {

class MirrorCommunicator : public Communicator {
 public:
  MirrorCommunicator(const char* name, int rank, int size) : Communicator(name, rank, size) {}

  const std::string& sent() const { return sent_; }  // all messages, in order

 private:
  void do_all_gather(Stream& stream, const Collective& call, const std::vector<GatherPart>& parts) override;
  void do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                     const Tensor& sent) override;
  void do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                         const Tensor& full) override;
  void do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) override;
  void do_send(Stream& stream, const Collective& call, const Tensor& t, int to) override;
  void do_receive(Stream& stream, const Collective& call, const Tensor& t, int from) override;
  void do_exchange(Stream& stream, const Collective& call, const Tensor& received, const Tensor& sent,
                   int peer) override;

  std::string sent_;
  uint64_t received_ = 0;  // number of messages
};

}  // namespace flatshard::test
