#include "tests/comm/mirror_communicator.h"

#include "kernels/elementwise.h"
#include "runtime/memory.h"
#include "runtime/rng.h"

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

// A rank only sends or only receives on a link, so no two threads meet here.
void MirrorCommunicator::do_send(Stream& stream, const Collective&, const Tensor& t, int) {
  stream.run("send",
             [this, t] { sent_.append(static_cast<const char*>(t.data), static_cast<size_t>(t.bytes())); });
}

void MirrorCommunicator::do_exchange(Stream& stream, const Collective&, const Tensor& received,
                                     const Tensor& sent, int) {
  copy(stream, received, sent);
}

void MirrorCommunicator::do_receive(Stream& stream, const Collective& call, const Tensor& t, int) {
  stream.run("receive", [this, label = std::string(call.label), t] {
    // Bits that depend on the label, the number of the message and the element; small floats of any dtype.
    const RandomStream random(received_++, label);
    auto* const bytes = static_cast<uint8_t*>(t.data);
    for (int64_t i = 0; i < t.bytes(); ++i)
      bytes[i] = static_cast<uint8_t>(random.bits(i) & (i % 2 == 1 ? 0x3f : 0xff));
  });
}

}  // namespace flatshard::test
