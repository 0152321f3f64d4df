#include "tests/comm/mirror_communicator.h"

#include "kernels/elementwise.h"
#include "runtime/memory.h"

namespace flatshard::test {
namespace {

void count(MirrorCommunicator::Tally& tally, const Tensor& whole) {
  ++tally.calls;
  tally.bytes += whole.bytes();
}

}  // namespace

void MirrorCommunicator::all_gather(Stream& stream, const Tensor& full, const Tensor& shard) {
  count(tallies_.all_gather, full);
  for (int i = 0; i < size(); ++i)
    if (const Tensor part = part_of(full, i, size()); part.data != shard.data) copy(stream, part, shard);
}

void MirrorCommunicator::all_to_all(Stream& stream, const Tensor& received, const Tensor& sent) {
  count(tallies_.all_to_all, sent);
  for (int i = 0; i < size(); ++i) copy(stream, part_of(received, i, size()), part_of(sent, rank(), size()));
}

void MirrorCommunicator::reduce_scatter(Stream& stream, const Tensor& shard, const Tensor& full) {
  count(tallies_.reduce_scatter, full);
  scale(stream, {.y = shard, .x = part_of(full, rank(), size()), .factor = static_cast<float>(size())});
}

}  // namespace flatshard::test
