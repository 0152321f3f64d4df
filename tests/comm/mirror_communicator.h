#pragma once
// One rank of many, without the others: whatever they would send is what this rank has itself. So a test
// drives any number of ranks in one process, and with a log sees every call that would go over the wire.

#include "comm/communicator.h"

namespace flatshard::test {

class MirrorCommunicator : public Communicator {
 public:
  MirrorCommunicator(const char* name, int rank, int size) : Communicator(name, rank, size) {}

 private:
  void do_all_gather(Stream& stream, const Collective& call, const Tensor& full,
                     const Tensor& shard) override;
  void do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                     const Tensor& sent) override;
  void do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                         const Tensor& full) override;
  void do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) override;
};

}  // namespace flatshard::test
