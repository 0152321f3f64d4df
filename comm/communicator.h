#pragma once
// Collectives and messages as work on a stream. All ranks of a communicator make the same collective calls in
// the same order. The number of elements of an unsharded tensor must be a multiple of the number of ranks.
// The label of a call names its purpose, such as a unit, for traces and error messages; it must live as long
// as the process: a literal, or intern().
//
// The public verbs check their tensors and log the call; a back end implements them (transport.cpp).

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "runtime/stream.h"
#include "runtime/tensor.h"

namespace flatshard {

class Arena;
class World;

// One tensor of an all_gather: full = the shards of all ranks, in rank order. `shard` may be this rank's part
// of `full` (in place).
struct GatherPart {
  Tensor full, shard;
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const char* name() const { return name_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // Gathers several tensors, which may differ in dtype, in one call.
  void all_gather(Stream& stream, const std::vector<GatherPart>& parts, const char* label);
  void all_gather(Stream& stream, const Tensor& full, const Tensor& shard, const char* label) {
    all_gather(stream, {{full, shard}}, label);
  }
  // received = part `rank` of every rank's `sent`, in rank order. Both consist of size() equal parts.
  void all_to_all(Stream& stream, const Tensor& received, const Tensor& sent, const char* label);
  // shard = part `rank` of the sum of all ranks' `full`. f32 only; the back end chooses the summation order.
  void reduce_scatter(Stream& stream, const Tensor& shard, const Tensor& full, const char* label);
  // t = the content of `root`'s t.
  void broadcast(Stream& stream, const Tensor& t, int root, const char* label);
  // A tensor of the sender is copied to a tensor of the receiver; only these two ranks make the call. The
  // messages between two ranks arrive in the order of the calls. A send may last until the other rank
  // receives.
  void send(Stream& stream, const Tensor& t, int to, const char* label);
  void receive(Stream& stream, const Tensor& t, int from, const char* label);
  // Two ranks send each other a tensor, of the sizes that both know.
  void exchange(Stream& stream, const Tensor& received, const Tensor& sent, int peer, const char* label);

  // Allocates the host memory that the calls made so far on planning streams need. To be called with the
  // planning arena, and again once it is committed. Back ends that need no memory do nothing.
  virtual void reserve_workspace(Arena&) {}

  // Makes the connections that the calls made so far on planning streams need. All ranks must call it before
  // they allocate the memory of a run, as a library would otherwise allocate its buffers at the first call.
  virtual void connect(Stream&) {}
  // Lets other ranks read and write this device memory while the result lives. All ranks must call it, with
  // memory of the same size and layout. The result must be destroyed before the memory and the communicator.
  [[nodiscard]] std::shared_ptr<void> register_memory(const Tensor& memory);
  // The text that tells users how registered memory is transferred: "copy engines, ..."; "" if there is no
  // choice.
  virtual std::string transfers() const { return ""; }

  // The ranks with which the calls on planning streams exchange data.
  struct Peers {
    bool all = false;            // collectives of the whole group
    std::set<int> to{}, from{};  // peers of messages, and of an all_to_all
  };
  const Peers& peers() const { return peers_; }

  // To be called before each launch of a graph (runtime/graph.h), which may block, and after it with one of
  // its streams. The watchdog cannot see the captured calls in a graph, and watches each launch as a whole.
  virtual void graph_launches() {}
  virtual void graph_launched(Stream&) {}

  // Appends every later call to `log`, also on planning streams; null stops it.
  void log_to(CollectiveLog* log) { log_ = log; }

 protected:
  Communicator(const char* name, int rank, int size) : name_(name), rank_(rank), size_(size) {}
  // The name of the call in a trace, such as "all_gather model.layers.3".
  static const char* span_name(const Stream& stream, const Collective& call);

 private:
  // The verbs, with checked tensors. Back ends report `call` to the watchdog while they are busy.
  virtual void do_all_gather(Stream& stream, const Collective& call,
                             const std::vector<GatherPart>& parts) = 0;
  virtual void do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                             const Tensor& sent) = 0;
  virtual void do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                                 const Tensor& full) = 0;
  virtual void do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) = 0;
  virtual void do_send(Stream& stream, const Collective& call, const Tensor& t, int to) = 0;
  virtual void do_receive(Stream& stream, const Collective& call, const Tensor& t, int from) = 0;
  virtual void do_exchange(Stream& stream, const Collective& call, const Tensor& received, const Tensor& sent,
                           int peer) = 0;

  virtual void* do_register(const Tensor&) { return nullptr; }
  virtual void do_deregister(void*) noexcept {}

  void check_peer(const char* verb, const char* label, int peer) const;
  Collective note(const Stream& stream, const char* verb, const char* label, int64_t bytes, DType dtype,
                  int peer = -1);

  const char* name_;
  int rank_, size_;
  Peers peers_;
  CollectiveLog* log_ = nullptr;
};

// Part `index` of `parts` equal parts of a tensor.
Tensor part_of(const Tensor& t, int index, int parts);

// host: MPI on host memory. staged: MPI on device tensors, through copies in host memory. nccl: NCCL.
enum class Transport { host, staged, nccl };

// A communicator over the ranks that pass the same color, in rank order. Calls on different communicators may
// be in flight at the same time. The name must be a literal. Only NCCL uses `device`.
std::unique_ptr<Communicator> make_communicator(World& world, const char* name, int color = 0,
                                                Transport transport = Transport::host,
                                                Device device = Device::cpu());
// A communicator for planning streams only, as rank `rank` of `size`. It needs neither other ranks nor a
// device.
std::unique_ptr<Communicator> make_planning_communicator(const char* name, int rank, int size,
                                                         Transport transport);
// An estimate of the device memory that the library of a transport allocates for the planned calls.
int64_t estimated_library_bytes(Transport transport, const Communicator& comm);
// The communicator for host memory: MPI, or a single rank.
std::unique_ptr<Communicator> make_host_communicator(World& world, const char* name, int color);

}  // namespace flatshard
