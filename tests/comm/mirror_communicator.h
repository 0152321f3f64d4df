#pragma once
// One rank of many, without the others: whatever they would send is what this rank has itself. So a test
// drives any number of ranks in one process, and sees every call that would go over the wire.

#include "comm/communicator.h"

namespace flatshard::test {

class MirrorCommunicator : public Communicator {
 public:
  MirrorCommunicator(int rank, int size) : Communicator(rank, size) {}

  void all_gather(Stream& stream, const Tensor& full, const Tensor& shard) override;
  void all_to_all(Stream& stream, const Tensor& received, const Tensor& sent) override;
  void reduce_scatter(Stream& stream, const Tensor& shard, const Tensor& full) override;

  // Calls so far, and the bytes of their larger tensors.
  struct Tally {
    int64_t calls = 0, bytes = 0;
    bool operator==(const Tally&) const = default;
  };
  struct Tallies {
    Tally all_gather, all_to_all, reduce_scatter;
  };
  Tallies take_tallies() { return std::exchange(tallies_, {}); }

 private:
  Tallies tallies_;
};

}  // namespace flatshard::test
