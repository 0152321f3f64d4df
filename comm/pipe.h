#pragma once
// Messages between the stages of a pipeline (train/setup/pipeline.h): activations to the next chunk,
// gradients to the previous one. Each flow has one stream for sending and one for receiving, so that messages
// are in transit while other micro-batches are computed, and no flow waits for another. The
// host waits only where the order of CPU streams makes it (runtime/stream.h). Sender and receiver must state
// messages of the same sizes.
//
// A PipeBuffer goes through
//
//   receive(flow, from, buffer, message)      starts once compute has released it and its content was sent
//   wait_arrived(compute, buffer)             compute may read and write it
//   send(flow, to, compute, buffer, message)  sends what compute has written so far
//   wait_sent(compute, buffer)                compute may write it again
//   release(compute, buffer)                  compute is done with it, for now
//
// pipe.cpp contains every record and every wait between compute and these streams.

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"

namespace flatshard {

// embedded and embedded_gradients are messages between the first stage and the last, if the last has the tied
// embedding.
enum class Flow { activations, gradients, embedded, embedded_gradients };
inline constexpr size_t kFlows = 4;

// The events of a buffer that messages are sent from, or received into.
struct PipeBuffer {
  Event arrived, written, sent, released;
};
// The parts of a buffer that are sent, in order, with one call each.
using Message = std::vector<Tensor>;

// The communicators of a pipeline. Each has one rank of every stage, in the order of the stages.
class PipeCommunicators {
 public:
  // Creates a communicator with this name. All ranks create the same ones.
  using Make = std::function<std::unique_ptr<Communicator>(const char* name)>;
  // `ring`: the last stage also sends activations to the first. `embeds_apart`: the last stage has the
  // embedding.
  PipeCommunicators(int stages, bool ring, bool embeds_apart, const Make& make);

  // The communicator for collectives of all stages, on the compute stream.
  Communicator& stages() const { return *stages_; }
  // The communicator for messages of a flow between two stages. A rank never sends and receives on the same
  // one.
  Communicator& link(Flow flow, int from, int to) const;
  void log_to(CollectiveLog* log) const;
  void reserve_workspace(Arena& pinned) const;
  void connect(Stream& stream) const;
  int64_t library_bytes(Transport transport) const;

 private:
  template <class Visit>
  void each(Visit&& visit) const;

  std::unique_ptr<Communicator> stages_;
  std::array<std::vector<std::unique_ptr<Communicator>>, kFlows> links_;
};

class Pipe {
 public:
  // Adds streams for the flows of these communicators.
  Pipe(const PipeCommunicators& comms, StreamSet& streams, bool embeds_apart);

  void receive(Flow flow, int from, PipeBuffer& buffer, const Message& message);
  void wait_arrived(Stream& compute, PipeBuffer& buffer);
  void send(Flow flow, int to, Stream& compute, PipeBuffer& buffer, const Message& message);
  void wait_sent(Stream& compute, PipeBuffer& buffer);
  void release(Stream& compute, PipeBuffer& buffer);

 private:
  struct Streams {
    Stream *send = nullptr, *receive = nullptr;
  };
  Streams& of(Flow flow) { return streams_[static_cast<size_t>(flow)]; }

  const PipeCommunicators& comms_;
  std::array<Streams, kFlows> streams_;
};

}  // namespace flatshard
