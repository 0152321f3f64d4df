#pragma once
// A communicator for one rank of many without the others: their data are copies of this rank's data. A test
// can so run as one of any number of ranks in one process and log every call.

#include "comm/communicator.h"

namespace flatshard::test {

class MirrorCommunicator : public Communicator {
 public:
  MirrorCommunicator(const char* name, int rank, int size) : Communicator(name, rank, size) {}

 private:
  void do_all_gather(Stream& stream, const Collective& call, const std::vector<GatherPart>& parts) override;
  void do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                     const Tensor& sent) override;
  void do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                         const Tensor& full) override;
  void do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) override;
};

}  // namespace flatshard::test
