// NCCL on the machine: the functions that a trainer needs, over MPI. A call is an operation of its stream
// like a copy, and every byte that it reads or writes is checked; it starts when the stream reaches it, and
// stays in flight until the other ranks have done their part. As in NCCL, all ranks must make the same
// calls in the same order, two ranks on one GPU are refused, and a non-blocking communicator is ready some
// time after the call that creates it. All ranks are in MPI_COMM_WORLD.
//
// A captured call is a node of its graph, which exchanges the values of its buffers at every launch. As in
// NCCL, all ranks must launch the graph, and a communicator cannot be destroyed while a graph has calls of
// it: NCCL would wait for the end of the graph, the machine aborts.
//
// A communicator that has windows must receive in them: its copy engines could not otherwise.
//
// Environment: PTX_VM_NCCL=stuck: no communicator is ever ready; windowless: none registers windows.

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <mpi.h>
#include <nccl.h>

#include "ptx_vm/piece.h"
#include "ptx_vm/report.h"
#include "ptx_vm/state.h"
#include "ptx_vm/streams.h"
#include "runtime/check.h"

struct ncclComm {
  MPI_Comm mpi = MPI_COMM_NULL;
  int rank = 0, size = 1;
  bool is_blocking = true;
  int polls = 0;                                           // until it is ready; negative: never
  std::map<void*, flatshard::ptx_vm::Piece> registered{};  // by their begin
  std::map<void*, flatshard::ptx_vm::Piece> windows{};     // the same
  bool prefers_copy_engines = false;
  int children = 0;  // that share its resources
  ncclComm* parent = nullptr;
  std::shared_ptr<const char> captured = std::make_shared<const char>();  // shared by all captured calls
};

namespace flatshard::ptx_vm {
namespace {

constexpr int kPollsUntilReady = 3;

std::string& last_nccl_error() {
  static auto* const text = new std::string;
  return *text;
}

template <class Work>
ncclResult_t attempt(Work&& work) {
  const int code = guarded([&] {
    try {
      work();
    } catch (const Error& error) {
      last_nccl_error() = error.what();
      throw;
    }
  });
  return code == cudaSuccess             ? ncclSuccess
         : code == cudaErrorInvalidValue ? ncclInvalidUsage
                                         : ncclUnhandledCudaError;
}

// What a program must never do, and could not report from a destructor.
void refuse(bool wrong, const char* what) {
  if (!wrong) return;
  std::fprintf(stderr, "NCCL on the PTX machine: %s\n", what);
  std::abort();
}

size_t bytes_of(ncclDataType_t type, size_t count) {
  switch (type) {
    case ncclUint8:
      return count;
    case ncclFloat32:
    case ncclInt32:
      return 4 * count;
    default:
      return 2 * count;
  }
}

struct Part {
  Piece piece;
  bool writes;
};

using Requests = std::vector<MPI_Request>;

// Starts an exchange in stream order, or at each launch of the graph that captures it. The pieces must be
// device memory.
void enqueue(const char* what, const ncclComm& comm, const std::vector<Part>& parts, cudaStream_t stream,
             std::function<Requests()> start) {
  for (const Part& part : parts) {
    check_range(part.piece, what);
    check(part.piece.is_on_device(), name_of(part.piece), " is not on the device");
  }
  Queue& queue = queue_of(stream);
  const std::shared_ptr<const char> captured = queue.captured.capture ? comm.captured : nullptr;
  streams().enqueue(queue, what, [parts, captured, start = std::move(start)](Activity& self) {
    Past past(timeline().begin(self));
    for (const Part& part : parts) touch(part.piece, past, part.writes);
    streams().stay_until([parts, requests = start()]() mutable {
      int is_over = 0;
      MPI_Testall(static_cast<int>(requests.size()), requests.data(), &is_over, MPI_STATUSES_IGNORE);
      if (!is_over) return false;
      for (const Part& part : parts)
        if (part.writes) heap().mark_written(part.piece.data, part.piece.bytes());
      return true;
    });
  });
}

struct Message {
  unsigned char* data;
  int bytes, peer;
  bool is_sent;
};
struct Group {
  int depth = 0;
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Message> messages{};
};
Group& group() {
  static Group only;
  return only;
}

ncclResult_t add_message(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm* comm,
                         cudaStream_t stream, bool is_sent) {
  return attempt([&] {
    Group& g = group();
    check(g.depth > 0, "a message outside a group");
    check(g.messages.empty() || (g.comm == comm && g.stream == stream),
          "messages of one group on two communicators");
    g.comm = comm;
    g.stream = stream;
    g.messages.push_back({static_cast<unsigned char*>(const_cast<void*>(data)),
                          static_cast<int>(bytes_of(type, count)), peer, is_sent});
  });
}

Requests start_messages(const std::vector<Message>& messages, MPI_Comm mpi) {
  Requests requests;
  for (const Message& m : messages) {
    requests.push_back(MPI_REQUEST_NULL);
    if (m.is_sent)
      MPI_Isend(m.data, m.bytes, MPI_BYTE, m.peer, 0, mpi, &requests.back());
    else
      MPI_Irecv(m.data, m.bytes, MPI_BYTE, m.peer, 0, mpi, &requests.back());
  }
  return requests;
}

void create(ncclComm& comm, MPI_Comm mpi, const ncclConfig_t& config) {
  comm.mpi = mpi;
  MPI_Comm_rank(mpi, &comm.rank);
  MPI_Comm_size(mpi, &comm.size);
  comm.is_blocking = config.blocking != 0;
  comm.prefers_copy_engines = config.CTAPolicy == NCCL_CTA_POLICY_ZERO;
}

// Memory of ncclMemAlloc, by its begin.
std::map<void*, size_t>& shared_memory() {
  static auto* const only = new std::map<void*, size_t>;
  return *only;
}

bool contains(const Piece& whole, const Piece& part) {
  return whole.data <= part.data && part.data + part.bytes() <= whole.data + whole.bytes();
}

void check_window(const ncclComm& comm, const Piece& received, const char* what) {
  if (comm.windows.empty()) return;
  for (const auto& [begin, window] : comm.windows)
    if (contains(window, received)) return;
  fail(str(what, " into ", name_of(received), ", which is in no window of the communicator"));
}

bool has_mode(const char* mode) {
  const char* const set = std::getenv("PTX_VM_NCCL");
  return set && std::strcmp(set, mode) == 0;
}

// The state after a call that takes time.
ncclResult_t begin(ncclComm& comm) {
  if (comm.is_blocking) return ncclSuccess;
  comm.polls = has_mode("stuck") ? -1 : kPollsUntilReady;
  return ncclInProgress;
}

// As NCCL, unless they claim to be on different hosts.
void check_own_gpus() {
  struct Gpu {
    std::array<char, 16> uuid{};
    std::array<char, 64> host{};
    bool operator==(const Gpu&) const = default;
  } mine;
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, 0);
  std::memcpy(mine.uuid.data(), properties.uuid.bytes, mine.uuid.size());
  if (const char* host = std::getenv("NCCL_HOSTID"))
    std::snprintf(mine.host.data(), mine.host.size(), "%s", host);
  int size = 1;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  std::vector<Gpu> all(static_cast<size_t>(size));
  MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, MPI_COMM_WORLD);
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      check(!(all[i] == all[j]), "duplicate GPU detected: ranks ", j, " and ", i);
}

}  // namespace

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  return result == ncclSuccess      ? "no error"
         : result == ncclInProgress ? "NCCL operation in progress"
                                    : "invalid usage";
}
const char* ncclGetLastError(ncclComm_t) { return last_nccl_error().c_str(); }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::memset(id->internal, 7, sizeof(id->internal));
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* made, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  ncclResult_t state = ncclSuccess;
  const ncclResult_t done = attempt([&] {
    check(id.internal[0] == 7, "not an id");
    check_own_gpus();
    MPI_Comm mpi;
    MPI_Comm_dup(MPI_COMM_WORLD, &mpi);
    *made = new ncclComm;
    create(**made, mpi, *config);
    check(rank == (*made)->rank && size == (*made)->size, "rank ", rank, " of ", size, " is not that of MPI");
    state = begin(**made);
  });
  return done == ncclSuccess ? state : done;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* made, ncclConfig_t* config) {
  return attempt([&] {
    check(comm->polls == 0, "a call on a communicator that is not ready");
    MPI_Comm mpi = MPI_COMM_NULL;
    MPI_Comm_split(comm->mpi, color == NCCL_SPLIT_NOCOLOR ? MPI_UNDEFINED : color, key, &mpi);
    *made = nullptr;
    if (mpi != MPI_COMM_NULL) {
      *made = new ncclComm;
      create(**made, mpi, *config);
      if (config->splitShare == 1) {
        (*made)->parent = comm;
        ++comm->children;
      }
    }
    begin(*comm);  // as in NCCL, the result of a split does not say that it is in progress
  });
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  *state = comm->polls == 0 ? ncclSuccess : ncclInProgress;
  if (comm->polls > 0) --comm->polls;
  return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  refuse(!comm->registered.empty(), "a communicator is destroyed with registered memory");
  refuse(!comm->windows.empty(), "a communicator is destroyed with open windows");
  refuse(comm->children != 0, "a communicator is destroyed before those that share its resources");
  refuse(comm->captured.use_count() > 1, "a communicator is destroyed before the graphs with its calls");
  if (comm->parent) --comm->parent->children;
  MPI_Comm_free(&comm->mpi);
  delete comm;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommRegister(ncclComm_t comm, void* data, size_t bytes, void** handle) {
  return attempt([&] {
    const Piece piece = piece_of(data, bytes);
    check_range(piece, "registered memory");
    check(piece.is_on_device(), name_of(piece), " is not on the device");
    check(comm->registered.emplace(data, piece).second, "memory is registered twice");
    *handle = data;
  });
}
ncclResult_t ncclCommDeregister(ncclComm_t comm, void* handle) {
  const auto found = comm->registered.find(handle);
  refuse(found == comm->registered.end(), "memory is deregistered that is not registered");
  refuse(!found->second.home(), "memory is deregistered after its release");
  comm->registered.erase(found);
  return ncclSuccess;
}

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void** data, size_t bytes) {
  constexpr size_t kGranule = size_t{2} << 20;
  if (cudaMalloc(data, (bytes + kGranule - 1) / kGranule * kGranule) != cudaSuccess)
    return ncclUnhandledCudaError;
  shared_memory()[*data] = bytes;
  return ncclSuccess;
}
ncclResult_t ncclMemFree(void* data) {
  refuse(shared_memory().erase(data) == 0, "memory is freed that ncclMemAlloc has not allocated");
  return cudaFree(data) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

// All ranks call it, with memory of one size.
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void* data, size_t bytes, ncclWindow_t* window,
                                    int flags) {
  *window = nullptr;
  if (has_mode("windowless")) return ncclInvalidUsage;
  return attempt([&] {
    const Piece piece = piece_of(data, bytes);
    check_range(piece, "a window");
    check(reinterpret_cast<uintptr_t>(data) % NCCL_WIN_REQUIRED_ALIGNMENT == 0, "a window at ", data);
    const auto whole = shared_memory().find(data);
    check(whole != shared_memory().end() && bytes <= whole->second,
          "a window on memory that ncclMemAlloc has not allocated");
    check(flags == NCCL_WIN_COLL_SYMMETRIC && comm->prefers_copy_engines, "a window without copy engines");
    std::vector<size_t> sizes(static_cast<size_t>(comm->size));
    MPI_Allgather(&bytes, sizeof bytes, MPI_BYTE, sizes.data(), sizeof bytes, MPI_BYTE, comm->mpi);
    for (const size_t size : sizes) check(size == bytes, "windows of ", bytes, " and ", size, " bytes");
    check(comm->windows.emplace(data, piece).second, "memory has two windows");
    *window = static_cast<ncclWindow_t>(data);
  });
}
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window) {
  const auto found = comm->windows.find(window);
  refuse(found == comm->windows.end(), "a window is closed that is not open");
  refuse(!found->second.home(), "a window is closed after the release of its memory");
  comm->windows.erase(found);
  return ncclSuccess;
}

ncclResult_t ncclAlltoAll(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
  return attempt([&] {
    const size_t bytes = bytes_of(type, count);
    const Piece received = piece_of(to, bytes * static_cast<size_t>(comm->size));
    check_window(*comm, received, "NCCL all-to-all");
    enqueue("NCCL all-to-all", *comm,
            {{piece_of(const_cast<void*>(from), received.bytes()), false}, {received, true}}, stream,
            [=, mpi = comm->mpi] {
              Requests one(1);
              MPI_Ialltoall(from, static_cast<int>(bytes), MPI_BYTE, to, static_cast<int>(bytes), MPI_BYTE,
                            mpi, one.data());
              return one;
            });
  });
}

ncclResult_t ncclGroupStart() {
  ++group().depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  Group& g = group();
  if (--g.depth > 0 || g.messages.empty()) return ncclSuccess;
  const std::vector<Message> messages = std::exchange(g.messages, {});
  return attempt([&] {
    std::vector<Part> parts;
    for (const Message& m : messages)
      parts.push_back({piece_of(m.data, static_cast<size_t>(m.bytes)), !m.is_sent});
    enqueue("NCCL messages", *g.comm, parts, g.stream,
            [messages, mpi = g.comm->mpi] { return start_messages(messages, mpi); });
  });
}

ncclResult_t ncclSend(const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_message(data, count, type, peer, comm, stream, true);
}
ncclResult_t ncclRecv(void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return add_message(data, count, type, peer, comm, stream, false);
}

ncclResult_t ncclAllGather(const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
  return attempt([&] {
    const size_t bytes = bytes_of(type, count);
    const bool in_place = from == static_cast<char*>(to) + static_cast<size_t>(comm->rank) * bytes;
    std::vector<Part> parts{{piece_of(to, bytes * static_cast<size_t>(comm->size)), true}};
    check_window(*comm, parts.front().piece, "NCCL all-gather");
    if (!in_place) parts.push_back({piece_of(const_cast<void*>(from), bytes), false});
    enqueue("NCCL all-gather", *comm, parts, stream, [=, mpi = comm->mpi] {
      Requests one(1);
      MPI_Iallgather(in_place ? MPI_IN_PLACE : from, static_cast<int>(bytes), MPI_BYTE, to,
                     static_cast<int>(bytes), MPI_BYTE, mpi, one.data());
      return one;
    });
  });
}

ncclResult_t ncclReduceScatter(const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t,
                               ncclComm_t comm, cudaStream_t stream) {
  return attempt([&] {
    check(type == ncclFloat32, "only sums of fp32 are supported");
    const size_t bytes = bytes_of(type, count);
    enqueue("NCCL reduce-scatter", *comm,
            {{piece_of(const_cast<void*>(from), bytes * static_cast<size_t>(comm->size)), false},
             {piece_of(to, bytes), true}},
            stream, [=, mpi = comm->mpi] {
              Requests one(1);
              MPI_Ireduce_scatter_block(from, to, static_cast<int>(count), MPI_FLOAT, MPI_SUM, mpi,
                                        one.data());
              return one;
            });
  });
}

ncclResult_t ncclBroadcast(const void* from, void* to, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return attempt([&] {
    check(from == to, "only a broadcast in place is supported");
    const size_t bytes = bytes_of(type, count);
    enqueue("NCCL broadcast", *comm, {{piece_of(to, bytes), comm->rank != root}}, stream,
            [=, mpi = comm->mpi] {
              Requests one(1);
              MPI_Ibcast(to, static_cast<int>(bytes), MPI_BYTE, root, mpi, one.data());
              return one;
            });
  });
}
}

}  // namespace flatshard::ptx_vm
