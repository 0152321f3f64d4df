#pragma once
// What ranks say to each other, as work on a stream. Every rank of a communicator makes the same calls in the
// same order. Tensors are given whole: their elements divide by the number of ranks. Each call says whom it
// serves, with a text that lasts as long as the process: a literal, or intern().
//
// The verbs check their tensors and write the call down; what carries them out is a back end: one rank alone
// (self_communicator.h), MPI (mpi_communicator.cpp).

#include <memory>

#include "comm/collective.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

class Arena;
class World;

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const char* name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // full = the shards of all ranks, in rank order; a shard may lie in its place in `full` already.
  void all_gather(Stream& stream, const Tensor& full, const Tensor& shard, const char* label);
  // received = part `rank` of every rank's `sent`, in rank order. Both are `size` parts of one length.
  void all_to_all(Stream& stream, const Tensor& received, const Tensor& sent, const char* label);
  // shard = part `rank` of the sum of every rank's `full`, in the order in which the library adds. f32 only.
  void reduce_scatter(Stream& stream, const Tensor& shard, const Tensor& full, const char* label);
  // t = what `root` has in it.
  void broadcast(Stream& stream, const Tensor& t, int root, const char* label);

  // Takes its room in host memory for the calls that were made on planning streams so far: once in a planning
  // arena, and again when that is committed. Where calls need none it takes none.
  virtual void reserve_workspace(Arena&) {}

  // From now on every call is written to a log, also on planning streams; null ends it.
  void log_to(CollectiveLog* log) { log_ = log; }

 protected:
  Communicator(const char* name, int rank, int size) : name_(name), rank_(rank), size_(size) {}
  // What the work of a call is named in a trace: "all_gather model.layers.3".
  static const char* span_name(const Stream& stream, const Collective& call);

 private:
  // The verbs, on tensors that fit. `call` is what a back end says of itself while it is busy.
  virtual void do_all_gather(Stream& stream, const Collective& call, const Tensor& full,
                             const Tensor& shard) = 0;
  virtual void do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                             const Tensor& sent) = 0;
  virtual void do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                                 const Tensor& full) = 0;
  virtual void do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) = 0;

  Collective note(const char* verb, const char* label, const Tensor& larger);

  const char* name_;
  int rank_, size_;
  CollectiveLog* log_ = nullptr;
};

// Part `index` of `parts` equal parts of a tensor.
Tensor part_of(const Tensor& t, int index, int parts);

// What carries tensors: MPI in host memory; MPI behind copies to host memory, for a device's tensors; NCCL.
enum class Transport { host, staged, nccl };

// A communicator over all ranks of the world, or over those that give the same color, in the order of their
// ranks. Each one is a conversation of its own: calls on two of them may be in flight together. The name is a
// literal. `device` counts for NCCL alone.
std::unique_ptr<Communicator> make_communicator(World& world, const char* name, int color = 0,
                                                Transport transport = Transport::host,
                                                Device device = Device::cpu());
// The same for planning streams alone, as rank `rank` of `size`: it needs neither the other ranks nor a
// device.
std::unique_ptr<Communicator> make_planning_communicator(const char* name, int rank, int size,
                                                         Transport transport);
// Of these, the one for host memory: MPI, or a rank alone.
std::unique_ptr<Communicator> make_host_communicator(World& world, const char* name, int color);

}  // namespace flatshard
