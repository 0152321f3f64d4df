// A communicator over MPI, for host memory. A call blocks the stream's thread until it is complete. The
// thread sleeps: MPI's own blocking calls poll, and so take processor time from the threads that compute.

#include <climits>
#include <mpi.h>

#include "comm/communicator.h"
#include "comm/mpi_meeting.h"
#include "comm/self_communicator.h"
#include "comm/watchdog.h"
#include "comm/world.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

void mpi_check(int status, const Collective& call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  fail(str(describe(call), ": ", std::string(text, static_cast<size_t>(length))));
}

// Starts a call that returns a request at once, and sleeps until it is complete.
template <class Start>
void run_asleep(const Collective& call, const Start& start) {
  MPI_Request request = MPI_REQUEST_NULL;
  mpi_check(start(&request), call);
  complete(request);
}

// MPI counts are int, so large messages use elements of a larger type.
class Elements {
 public:
  explicit Elements(int64_t bytes) {
    while (bytes / size_ > INT_MAX && bytes % (2 * size_) == 0) size_ *= 2;
    check(bytes / size_ <= INT_MAX, "a message of ", bytes, " bytes is too long for MPI");
    count_ = static_cast<int>(bytes / size_);
    MPI_Type_contiguous(static_cast<int>(size_), MPI_BYTE, &type_);
    MPI_Type_commit(&type_);
  }
  ~Elements() { MPI_Type_free(&type_); }
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;

  int count() const { return count_; }
  MPI_Datatype type() const { return type_; }

 private:
  int64_t size_ = 1;
  int count_ = 0;
  MPI_Datatype type_ = MPI_DATATYPE_NULL;
};

class MpiCommunicator : public Communicator {
 public:
  MpiCommunicator(const char* name, MPI_Comm comm, int rank, int size, Watchdog* watchdog)
      : Communicator(name, rank, size), comm_(comm), watchdog_(watchdog) {}
  ~MpiCommunicator() override { MPI_Comm_free(&comm_); }

 private:
  void do_all_gather(Stream& stream, const Collective& call, const std::vector<GatherPart>& parts) override {
    for (const auto& [full, shard] : parts) check_host({full, shard});
    run(stream, call, [this, call, parts] {
      for (const auto& [full, shard] : parts) {
        const Elements elements(shard.bytes());
        const bool in_place = shard.data == part_of(full, rank(), size()).data;
        run_asleep(call, [&](MPI_Request* request) {
          return MPI_Iallgather(in_place ? MPI_IN_PLACE : shard.data, elements.count(), elements.type(),
                                full.data, elements.count(), elements.type(), comm_, request);
        });
      }
    });
  }

  void do_all_to_all(Stream& stream, const Collective& call, const Tensor& received,
                     const Tensor& sent) override {
    check_host({received, sent});
    const int64_t part = part_of(sent, 0, size()).bytes();
    run(stream, call, part, [=, this](const Elements& elements, MPI_Request* request) {
      return MPI_Ialltoall(sent.data, elements.count(), elements.type(), received.data, elements.count(),
                           elements.type(), comm_, request);
    });
  }

  void do_reduce_scatter(Stream& stream, const Collective& call, const Tensor& shard,
                         const Tensor& full) override {
    check(shard.size() <= INT_MAX, "reduce_scatter: a shard of ", shard.size(), " elements, MPI counts to ",
          INT_MAX);
    check_host({full, shard});
    run(stream, call, [this, call, shard, full] {
      run_asleep(call, [&](MPI_Request* request) {
        return MPI_Ireduce_scatter_block(full.data, shard.data, static_cast<int>(shard.size()), MPI_FLOAT,
                                         MPI_SUM, comm_, request);
      });
    });
  }

  void do_broadcast(Stream& stream, const Collective& call, const Tensor& t, int root) override {
    check_host({t});
    run(stream, call, t.bytes(), [=, this](const Elements& elements, MPI_Request* request) {
      return MPI_Ibcast(t.data, elements.count(), elements.type(), root, comm_, request);
    });
  }

  void do_send(Stream& stream, const Collective& call, const Tensor& t, int to) override {
    check_host({t});
    run(stream, call, t.bytes(), [=, this](const Elements& elements, MPI_Request* request) {
      return MPI_Isend(t.data, elements.count(), elements.type(), to, kTag, comm_, request);
    });
  }

  void do_receive(Stream& stream, const Collective& call, const Tensor& t, int from) override {
    check_host({t});
    run(stream, call, t.bytes(), [=, this](const Elements& elements, MPI_Request* request) {
      return MPI_Irecv(t.data, elements.count(), elements.type(), from, kTag, comm_, request);
    });
  }

  void do_exchange(Stream& stream, const Collective& call, const Tensor& received, const Tensor& sent,
                   int peer) override {
    check_host({received, sent});
    run(stream, call, [this, call, received, sent, peer] {
      const Elements in(received.bytes()), out(sent.bytes());
      MPI_Request requests[2];
      mpi_check(MPI_Irecv(received.data, in.count(), in.type(), peer, kTag, comm_, &requests[0]), call);
      mpi_check(MPI_Isend(sent.data, out.count(), out.type(), peer, kTag, comm_, &requests[1]), call);
      for (MPI_Request& request : requests) complete(request);
    });
  }

  static void check_host(std::initializer_list<Tensor> tensors) {
    for (const Tensor& t : tensors)
      check(!t.device.is_cuda(), "MPI supports host memory only; a tensor is on ", t.device);
  }

  template <class Work>
  void run(Stream& stream, const Collective& call, Work work) {
    stream.run(span_name(stream, call), [this, call, work] {
      const InFlight flight(watchdog_, call);
      work();
    });
  }
  // Runs start(elements, request), a call on messages of so many bytes.
  template <class Start>
  void run(Stream& stream, const Collective& call, int64_t bytes, Start start) {
    run(stream, call, [call, bytes, start] {
      const Elements elements(bytes);
      run_asleep(call, [&](MPI_Request* request) { return start(elements, request); });
    });
  }

  static constexpr int kTag = 0;  // one tag suffices: messages between two ranks arrive in order

  MPI_Comm comm_;
  Watchdog* watchdog_;
};

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(World& world, const char* name, int color) {
  if (!world.over_mpi()) return std::make_unique<SelfCommunicator>(name);
  const InFlight flight(world.watchdog(), {name, "split", "the ranks", 0, DType::i32});
  MPI_Comm part = MPI_COMM_NULL;
  check(MPI_Comm_split(MPI_COMM_WORLD, color, world.rank(), &part) == MPI_SUCCESS, "MPI_Comm_split failed");
  int rank = 0, size = 0;
  MPI_Comm_rank(part, &rank);
  MPI_Comm_size(part, &size);
  return std::make_unique<MpiCommunicator>(name, part, rank, size, world.watchdog());
}

}  // namespace flatshard
