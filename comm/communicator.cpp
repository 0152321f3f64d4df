#include "comm/communicator.h"

#include <algorithm>
#include <mutex>

#include "runtime/check.h"
#include "runtime/recording.h"

namespace flatshard {

std::string describe(const Collective& call) {
  return str(call.verb, " of ", call.label, " on ", call.communicator, ", ", call.bytes, " bytes");
}

const char* intern(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string>& texts =
      *new std::set<std::string>;  // never destroyed: threads may still read it
  const std::lock_guard lock(mutex);
  return texts.insert(text).first->c_str();
}

Tensor part_of(const Tensor& t, int index, int parts) {
  check(t.size() % parts == 0, "a tensor ", t.shape, " does not divide into ", parts, " parts");
  const int64_t size = t.size() / parts;
  return t.view({t.size()}).slice(index * size, (index + 1) * size);
}

// Logs a call, and records it unless this rank is alone: then nothing is exchanged, and the copies that
// replace the exchange are recorded themselves.
Collective Communicator::note(const Stream& stream, const char* verb, const char* label, int64_t bytes,
                              DType dtype, int peer) {
  const Collective call{name_, verb, label, bytes, dtype};
  if (stream.recorded() && size_ > 1) {
    if (Recording* const recording = stream.recording())
      recording->add_exchange(stream.index(), {.communicator = name_,
                                               .verb = verb,
                                               .label = label,
                                               .bytes = bytes,
                                               .ranks = size_,
                                               .peer = peer});
    else
      stream.starts(span_name(stream, call));
  }
  if (log_) log_->push_back(call);
  return call;
}

const char* Communicator::span_name(const Stream& stream, const Collective& call) {
  return stream.traced() ? intern(str(call.verb, ' ', call.label)) : call.verb;
}

void Communicator::all_gather(Stream& stream, const std::vector<GatherPart>& parts, const char* label) {
  int64_t bytes = 0;
  for (const auto& [full, shard] : parts) {
    check(part_of(full, rank_, size_).bytes() == shard.bytes() && full.dtype == shard.dtype, "all_gather of ",
          label, ": ", size_, " shards ", shard.shape, " of ", shard.dtype, " do not make up ", full.shape,
          " of ", full.dtype);
    bytes += full.bytes();
  }
  if (stream.planning()) peers_.all = true;
  do_all_gather(stream, note(stream, "all_gather", label, bytes, parts.front().full.dtype), parts);
}

void Communicator::all_to_all(Stream& stream, const Tensor& received, const Tensor& sent, const char* label) {
  check(received.bytes() == sent.bytes() && received.dtype == sent.dtype, "all_to_all of ", label, ": ",
        "cannot receive ", sent.shape, " of ", sent.dtype, " into ", received.shape, " of ", received.dtype);
  check(sent.size() % size_ == 0, "all_to_all of ", label, ": a tensor ", sent.shape,
        " does not divide into ", size_, " parts");
  for (int peer = 0; stream.planning() && peer < size_; ++peer)
    if (peer != rank_) peers_.to.insert(peer), peers_.from.insert(peer);
  do_all_to_all(stream, note(stream, "all_to_all", label, sent.bytes(), sent.dtype), received, sent);
}

void Communicator::reduce_scatter(Stream& stream, const Tensor& shard, const Tensor& full,
                                  const char* label) {
  check(shard.dtype == DType::f32 && full.dtype == DType::f32, "reduce_scatter of ", label, ": dtype is ",
        full.dtype, ", must be f32");
  check(part_of(full, rank_, size_).size() == shard.size(), "reduce_scatter of ", label, ": ", size_,
        " shards ", shard.shape, " do not make up ", full.shape);
  if (stream.planning()) peers_.all = true;
  do_reduce_scatter(stream, note(stream, "reduce_scatter", label, full.bytes(), full.dtype), shard, full);
}

void Communicator::broadcast(Stream& stream, const Tensor& t, int root, const char* label) {
  check(root >= 0 && root < size_, "broadcast of ", label, ": root is rank ", root, ", must be below ",
        size_);
  if (stream.planning()) peers_.all = true;
  do_broadcast(stream, note(stream, "broadcast", label, t.bytes(), t.dtype), t, root);
}

void Communicator::check_peer(const char* verb, const char* label, int peer) const {
  check(peer >= 0 && peer < size_ && peer != rank_, verb, " of ", label, ": the peer is rank ", peer,
        ", must be another one below ", size_);
}

void Communicator::send(Stream& stream, const Tensor& t, int to, const char* label) {
  check_peer("send", label, to);
  if (stream.planning()) peers_.to.insert(to);
  do_send(stream, note(stream, "send", label, t.bytes(), t.dtype, to), t, to);
}

void Communicator::receive(Stream& stream, const Tensor& t, int from, const char* label) {
  check_peer("receive", label, from);
  if (stream.planning()) peers_.from.insert(from);
  do_receive(stream, note(stream, "receive", label, t.bytes(), t.dtype, from), t, from);
}

void Communicator::exchange(Stream& stream, const Tensor& received, const Tensor& sent, int peer,
                            const char* label) {
  check_peer("exchange", label, peer);
  check(received.dtype == sent.dtype, "exchange of ", label, ": cannot receive ", sent.dtype, " as ",
        received.dtype);
  if (stream.planning()) peers_.to.insert(peer), peers_.from.insert(peer);
  const int64_t bytes = std::max(sent.bytes(), received.bytes());
  do_exchange(stream, note(stream, "exchange", label, bytes, sent.dtype, peer), received, sent, peer);
}

std::shared_ptr<void> Communicator::register_memory(const Tensor& memory) {
  if (memory.empty() || !memory.device.is_cuda()) return nullptr;
  void* const handle = do_register(memory);
  if (!handle) return nullptr;
  return {handle, [this](void* registered) { do_deregister(registered); }};
}

}  // namespace flatshard
