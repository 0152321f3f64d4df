#include "tests/comm/mirror_communicator.h"

#include "kernels/elementwise.h"
#include "runtime/memory.h"

namespace flatshard::test {

void MirrorCommunicator::do_all_gather(Stream& stream, const Collective&,
                                       const std::vector<GatherPart>& parts) {
  for (const auto& [full, shard] : parts)
    for (int i = 0; i < size(); ++i)
      if (const Tensor part = part_of(full, i, size()); part.data != shard.data) copy(stream, part, shard);
}

void MirrorCommunicator::do_all_to_all(Stream& stream, const Collective&, const Tensor& received,
                                       const Tensor& sent) {
  for (int i = 0; i < size(); ++i) copy(stream, part_of(received, i, size()), part_of(sent, rank(), size()));
}

void MirrorCommunicator::do_reduce_scatter(Stream& stream, const Collective&, const Tensor& shard,
                                           const Tensor& full) {
  scale(stream, {.y = shard, .x = part_of(full, rank(), size()), .factor = static_cast<float>(size())});
}

void MirrorCommunicator::do_broadcast(Stream&, const Collective&, const Tensor&, int) {}

}  // namespace flatshard::test
