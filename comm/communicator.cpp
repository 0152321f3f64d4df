#include "comm/communicator.h"

#include "comm/self_communicator.h"
#include "runtime/memory.h"

namespace flatshard {

Tensor part_of(const Tensor& t, int index, int parts) {
  check(t.size() % parts == 0, "a tensor ", t.shape, " does not divide into ", parts, " parts");
  const int64_t size = t.size() / parts;
  return t.view({t.size()}).slice(index * size, (index + 1) * size);
}

Collective Communicator::note(const char* verb, const char* label, const Tensor& larger) {
  const Collective call{name_, verb, label, larger.bytes(), larger.dtype};
  if (log_) log_->push_back(call);
  return call;
}

const char* Communicator::span_name(const Stream& stream, const Collective& call) {
  return stream.traced() ? intern(str(call.verb, ' ', call.label)) : call.verb;
}

void Communicator::all_gather(Stream& stream, const Tensor& full, const Tensor& shard, const char* label) {
  check(part_of(full, rank_, size_).bytes() == shard.bytes() && full.dtype == shard.dtype, "all_gather of ",
        label, ": ", size_, " shards ", shard.shape, " of ", shard.dtype, " do not make up ", full.shape,
        " of ", full.dtype);
  do_all_gather(stream, note("all_gather", label, full), full, shard);
}

void Communicator::all_to_all(Stream& stream, const Tensor& received, const Tensor& sent, const char* label) {
  check(received.bytes() == sent.bytes() && received.dtype == sent.dtype, "all_to_all of ", label, ": ",
        "cannot receive ", sent.shape, " of ", sent.dtype, " into ", received.shape, " of ", received.dtype);
  check(sent.size() % size_ == 0, "all_to_all of ", label, ": a tensor ", sent.shape,
        " does not divide into ", size_, " parts");
  do_all_to_all(stream, note("all_to_all", label, sent), received, sent);
}

void Communicator::reduce_scatter(Stream& stream, const Tensor& shard, const Tensor& full,
                                  const char* label) {
  check(shard.dtype == DType::f32 && full.dtype == DType::f32, "reduce_scatter of ", label, ": dtype is ",
        full.dtype, ", must be f32");
  check(part_of(full, rank_, size_).size() == shard.size(), "reduce_scatter of ", label, ": ", size_,
        " shards ", shard.shape, " do not make up ", full.shape);
  do_reduce_scatter(stream, note("reduce_scatter", label, full), shard, full);
}

void Communicator::broadcast(Stream& stream, const Tensor& t, int root, const char* label) {
  check(root >= 0 && root < size_, "broadcast of ", label, ": root is rank ", root, ", must be below ",
        size_);
  do_broadcast(stream, note("broadcast", label, t), t, root);
}

void SelfCommunicator::do_all_gather(Stream& stream, const Collective&, const Tensor& full,
                                     const Tensor& shard) {
  if (full.data != shard.data) copy(stream, full, shard);
}

void SelfCommunicator::do_all_to_all(Stream& stream, const Collective&, const Tensor& received,
                                     const Tensor& sent) {
  copy(stream, received, sent);
}

void SelfCommunicator::do_reduce_scatter(Stream& stream, const Collective&, const Tensor& shard,
                                         const Tensor& full) {
  copy(stream, shard, full);
}

void SelfCommunicator::do_broadcast(Stream&, const Collective&, const Tensor&, int) {}

}  // namespace flatshard
