#pragma once
// One rank alone: what it would be sent it has, and a copy is all that an exchange takes.

#include "comm/communicator.h"

namespace flatshard {

class SelfCommunicator : public Communicator {
 public:
  SelfCommunicator() : Communicator(0, 1) {}
  void all_gather(Stream& stream, const Tensor& full, const Tensor& shard) override;
  void all_to_all(Stream& stream, const Tensor& received, const Tensor& sent) override;
  void reduce_scatter(Stream& stream, const Tensor& shard, const Tensor& full) override;
};

}  // namespace flatshard
