#include "comm/pipe.h"

#include <string>

namespace flatshard {
namespace {

constexpr const char* kNames[kFlows] = {"activations", "gradients", "embedded tokens", "embedding gradients"};
constexpr const char* kSends[kFlows] = {"send activations", "send gradients", "send embedded tokens",
                                        "send embedding gradients"};
constexpr const char* kReceives[kFlows] = {"receive activations", "receive gradients",
                                           "receive embedded tokens", "receive embedding gradients"};

bool connects_embedding(size_t flow) {
  return flow == static_cast<size_t>(Flow::embedded) || flow == static_cast<size_t>(Flow::embedded_gradients);
}

}  // namespace

// Neighbouring edges of the chain or ring of stages have different communicators; a ring of odd length
// needs three.
PipeCommunicators::PipeCommunicators(int stages, bool ring, bool embeds_apart, const Make& make)
    : stages_(make("stages")) {
  if (stages == 1) return;
  const int colors = ring && stages % 2 == 1 ? 3 : ring || stages > 2 ? 2 : 1;
  for (size_t flow = 0; flow < kFlows; ++flow)
    for (int i = 0; i < (connects_embedding(flow) ? (embeds_apart ? 1 : 0) : colors); ++i)
      links_[flow].push_back(make(kNames[flow]));
}

Communicator& PipeCommunicators::link(Flow flow, int from, int to) const {
  const auto& links = links_[static_cast<size_t>(flow)];
  if (links.size() == 1) return *links.front();
  const int stages = stages_->size();
  const int edge = flow == Flow::activations ? from : to;  // the stage at the edge's lower end
  return *links[edge == stages - 1 && links.size() == 3 ? 2 : static_cast<size_t>(edge % 2)];
}

template <class Visit>
void PipeCommunicators::each(Visit&& visit) const {
  visit(*stages_);
  for (const auto& links : links_)
    for (const auto& link : links) visit(*link);
}

void PipeCommunicators::log_to(CollectiveLog* log) const {
  each([&](Communicator& comm) { comm.log_to(log); });
}

void PipeCommunicators::reserve_workspace(Arena& pinned) const {
  each([&](Communicator& comm) { comm.reserve_workspace(pinned); });
}

void PipeCommunicators::connect(Stream& stream) const {
  each([&](Communicator& comm) { comm.connect(stream); });
}

int64_t PipeCommunicators::library_bytes(Transport transport) const {
  int64_t bytes = 0;
  each([&](const Communicator& comm) { bytes += estimated_library_bytes(transport, comm); });
  return bytes;
}

Pipe::Pipe(const PipeCommunicators& comms, StreamSet& streams, bool embeds_apart) : comms_(comms) {
  if (comms.stages().size() == 1) return;
  for (size_t flow = 0; flow < kFlows; ++flow)
    if (!connects_embedding(flow) || embeds_apart)
      streams_[flow] = {&streams.add(kSends[flow], StreamRole::comm),
                        &streams.add(kReceives[flow], StreamRole::comm)};
}

void Pipe::receive(Flow flow, int from, PipeBuffer& buffer, const Message& message) {
  Stream& stream = *of(flow).receive;
  stream.wait(buffer.released);  // compute may still use the previous content
  stream.wait(buffer.sent);      // the previous content may still be in transit
  Communicator& link = comms_.link(flow, from, comms_.stages().rank());
  for (const Tensor& part : message) link.receive(stream, part, from, kNames[static_cast<size_t>(flow)]);
  stream.record(buffer.arrived);
}

void Pipe::wait_arrived(Stream& compute, PipeBuffer& buffer) { compute.wait(buffer.arrived); }

void Pipe::send(Flow flow, int to, Stream& compute, PipeBuffer& buffer, const Message& message) {
  Stream& stream = *of(flow).send;
  compute.record(buffer.written);
  stream.wait(buffer.written);  // compute has written the message
  Communicator& link = comms_.link(flow, comms_.stages().rank(), to);
  for (const Tensor& part : message) link.send(stream, part, to, kNames[static_cast<size_t>(flow)]);
  stream.record(buffer.sent);
}

void Pipe::wait_sent(Stream& compute, PipeBuffer& buffer) {
  compute.wait(buffer.sent);  // the message may still be read
}

void Pipe::release(Stream& compute, PipeBuffer& buffer) { compute.record(buffer.released); }

}  // namespace flatshard
