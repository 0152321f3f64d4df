#include "comm/world.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include <climits>
#include <mpi.h>

#include "comm/launch.h"
#include "comm/mpi_meeting.h"
#include "comm/watchdog.h"
#include "runtime/check.h"

namespace flatshard {
namespace {

void mpi_check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(status, text, &length);
  fail(str(call, ": ", std::string(text, static_cast<size_t>(length))));
}

// MPI counts in int: a text is sent after its length, in parts.
constexpr int64_t kTextPart = int64_t{1} << 30;

void send_text(const std::string& text) {
  const int64_t size = static_cast<int64_t>(text.size());
  mpi_check(MPI_Send(&size, 1, MPI_INT64_T, 0, 0, MPI_COMM_WORLD), "MPI_Send");
  for (int64_t at = 0; at < size; at += kTextPart)
    mpi_check(MPI_Send(text.data() + at, static_cast<int>(std::min(kTextPart, size - at)), MPI_CHAR, 0, 0,
                       MPI_COMM_WORLD),
              "MPI_Send");
}

std::string receive_text(int rank) {
  int64_t size = 0;
  mpi_check(MPI_Recv(&size, 1, MPI_INT64_T, rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), "MPI_Recv");
  std::string text(static_cast<size_t>(size), ' ');
  for (int64_t at = 0; at < size; at += kTextPart)
    mpi_check(MPI_Recv(text.data() + at, static_cast<int>(std::min(kTextPart, size - at)), MPI_CHAR, rank, 0,
                       MPI_COMM_WORLD, MPI_STATUS_IGNORE),
              "MPI_Recv");
  return text;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

// The time that a rank whose collective has timed out waits for others to report the same.
constexpr std::chrono::seconds kRollCall{2};

// A collective of host values, for the watchdog.
Collective host_call(const char* verb, const char* what, size_t bytes) {
  return {"host", verb, what, static_cast<int64_t>(bytes), DType::i32};
}

// Ends this process if MPI takes too long to let the ranks join or leave. Until the ranks have met there is
// no other watchdog.
class TimeLimit {
 public:
  TimeLimit(const char* verb, std::chrono::seconds longest)
      : watchdog_(launched_rank(), {}, parting_, [] { return "a rank has not come"; }),
        flight_(&watchdog_, host_call(verb, "all ranks", 0)) {
    watchdog_.limit(longest);
  }

 private:
  std::atomic<Parting> parting_{Parting::not_yet};
  Watchdog watchdog_;
  InFlight flight_;
};

// The reason has been printed, so Open MPI 4 need not add eight lines about MPI_Abort. It reads its setting
// for that from the environment only at its start, when the setting would also hide MPI's startup errors.
void keep_abort_quiet() {
  if (void* const quiet = dlsym(RTLD_DEFAULT, "orte_execute_quiet")) *static_cast<bool*>(quiet) = true;
}

}  // namespace

static_assert(std::atomic<Parting>::is_always_lock_free, "processes share it");

// The ranks of a host, and for each rank a value in shared memory: how it ends.
struct World::Host {
  Host(int rank, MPI_Comm comm) : comm_(comm) {
    mpi_check(MPI_Comm_dup(MPI_COMM_WORLD, &failing), "MPI_Comm_dup");
    MPI_Comm_rank(comm, &place_);
    MPI_Comm_size(comm, &size_);
    void* memory = nullptr;
    mpi_check(
        MPI_Win_allocate_shared(sizeof(std::atomic<Parting>), 1, MPI_INFO_NULL, comm, &memory, &window_),
        "MPI_Win_allocate_shared");
    own_ = new (memory) std::atomic<Parting>(Parting::not_yet);
    const std::array<int64_t, 3> mine{rank, getpid(), process_namespace()};
    ids_.resize(static_cast<size_t>(size_));
    mpi_check(MPI_Allgather(mine.data(), 3, MPI_INT64_T, ids_.data(), 3, MPI_INT64_T, comm), "MPI_Allgather");
  }
  ~Host() {
    MPI_Win_free(&window_);
    MPI_Comm_free(&comm_);
    MPI_Comm_free(&failing);
  }
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  // The other ranks whose process ids are valid in this process's namespace.
  std::vector<Watchdog::Peer> peers() const {
    std::vector<Watchdog::Peer> found;
    for (int place = 0; place < size_; ++place) {
      const auto& [rank, pid, space] = ids_[static_cast<size_t>(place)];
      if (place == place_ || space != ids_[static_cast<size_t>(place_)][2]) continue;
      MPI_Aint bytes = 0;
      int unit = 0;
      void* word = nullptr;
      mpi_check(MPI_Win_shared_query(window_, place, &bytes, &unit, &word), "MPI_Win_shared_query");
      found.push_back(
          {static_cast<int>(rank), static_cast<pid_t>(pid), static_cast<std::atomic<Parting>*>(word)});
    }
    return found;
  }
  std::atomic<Parting>& own() { return *own_; }
  int place() const { return place_; }
  int size() const { return size_; }

  MPI_Comm failing = MPI_COMM_NULL;  // all ranks; only failing ranks use it

 private:
  static int64_t process_namespace() {
    struct stat s {};
    return stat("/proc/self/ns/pid", &s) == 0 ? static_cast<int64_t>(s.st_ino) : 0;
  }

  MPI_Comm comm_;
  MPI_Win window_ = MPI_WIN_NULL;
  int place_ = 0, size_ = 1;
  std::atomic<Parting>* own_ = nullptr;
  std::vector<std::array<int64_t, 3>> ids_;  // rank, process id, and its namespace
};

World::World(std::chrono::seconds longest) {
  hosts_ = {host_name()};
  if (!launched_ranks()) return;
  const TimeLimit limit("join", longest);
  int provided = MPI_THREAD_SINGLE;  // each communication stream calls MPI from its own thread
  mpi_check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  check(provided == MPI_THREAD_MULTIPLE, "this MPI library cannot be used by several threads at once");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  check_ranks_joined(size_);
  MPI_Comm host;
  mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  host_ = std::make_unique<Host>(rank_, host);
  local_rank_ = host_->place();
  local_size_ = host_->size();
  over_mpi_ = true;
  hosts_ = all_gather_texts(host_name(), "host names");
  watchdog_ = std::make_unique<Watchdog>(rank_, host_->peers(), host_->own(),
                                         [this] { return describe_silent(silent_ranks(), hosts_); });
  watchdog_->limit(longest);
}

World::~World() {
  if (!over_mpi_) return;
  const TimeLimit limit("leave", watchdog_->limit());
  watchdog_->leave(Parting::finished);
  watchdog_.reset();
  host_.reset();
  MPI_Finalize();
}

std::vector<double> World::all_gather(std::span<const double> values, const char* what) {
  if (!over_mpi_) return {values.begin(), values.end()};
  const InFlight flight(watchdog_.get(), host_call("all_gather", what, values.size_bytes() * all_ranks()));
  meet(MPI_COMM_WORLD);
  const int count = static_cast<int>(values.size());
  std::vector<double> all(values.size() * all_ranks());
  mpi_check(MPI_Allgather(values.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, MPI_COMM_WORLD),
            "MPI_Allgather");
  return all;
}

void World::collect(const std::function<std::string()>& give,
                    const std::function<void(int rank, const std::string& text)>& take) {
  const InFlight flight(watchdog_.get(), host_call("collect", "texts", 0));
  if (rank_ != 0) {
    std::string text;
    do send_text(text = give());
    while (!text.empty());
    return;
  }
  for (std::string text = give(); !text.empty(); text = give()) take(0, text);
  for (int rank = 1; rank < size_; ++rank)
    for (std::string text = receive_text(rank); !text.empty(); text = receive_text(rank)) take(rank, text);
}

std::vector<std::string> World::all_gather_texts(const std::string& text, const char* what) {
  if (!over_mpi_) return {text};
  const InFlight flight(watchdog_.get(), host_call("all_gather", what, text.size() * all_ranks()));
  meet(MPI_COMM_WORLD);
  const int mine = static_cast<int>(text.size());
  std::vector<int> sizes(all_ranks()), begins(all_ranks());
  mpi_check(MPI_Allgather(&mine, 1, MPI_INT, sizes.data(), 1, MPI_INT, MPI_COMM_WORLD), "MPI_Allgather");
  int64_t total = 0;
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    begins[rank] = static_cast<int>(total);
    total += sizes[rank];
    check(total <= INT_MAX, "texts of all ranks, ", what, ", are longer than MPI counts");
  }
  std::string all(static_cast<size_t>(total), '\0');
  mpi_check(MPI_Allgatherv(text.data(), mine, MPI_CHAR, all.data(), sizes.data(), begins.data(), MPI_CHAR,
                           MPI_COMM_WORLD),
            "MPI_Allgatherv");
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < sizes.size(); ++rank)
    texts.push_back(all.substr(static_cast<size_t>(begins[rank]), static_cast<size_t>(sizes[rank])));
  return texts;
}

void World::barrier(const char* what) {
  if (!over_mpi_) return;
  const InFlight flight(watchdog_.get(), host_call("barrier", what, 0));
  meet(MPI_COMM_WORLD);
}

bool World::all_arrive(std::chrono::seconds within) {
  if (!over_mpi_) return true;
  return meet(host_->failing, within);
}

// Each rank whose collective has timed out calls this at about the same time and sends a message to all
// others. Ranks that send none are stuck, still busy, or cut off.
std::vector<int> World::silent_ranks() const {
  constexpr int kTag = 1;
  char sent = 0;
  std::vector<char> received(all_ranks());
  std::vector<MPI_Request> answers(all_ranks(), MPI_REQUEST_NULL), calls(all_ranks(), MPI_REQUEST_NULL);
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    const size_t i = static_cast<size_t>(rank);
    MPI_Irecv(&received[i], 1, MPI_CHAR, rank, kTag, host_->failing, &answers[i]);
    MPI_Isend(&sent, 1, MPI_CHAR, rank, kTag, host_->failing, &calls[i]);
  }
  const auto end = std::chrono::steady_clock::now() + kRollCall;
  int all = 0;
  while (!all && std::chrono::steady_clock::now() < end) {
    MPI_Testall(size_, answers.data(), &all, MPI_STATUSES_IGNORE);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::vector<int> silent;
  for (int rank = 0; rank < size_ && !all; ++rank) {
    int answered = 0;
    MPI_Test(&answers[static_cast<size_t>(rank)], &answered, MPI_STATUS_IGNORE);
    if (!answered) silent.push_back(rank);
  }
  return silent;
}

void World::limit_collectives(std::chrono::seconds longest) {
  if (watchdog_) watchdog_->limit(longest);
}

std::chrono::seconds World::collective_limit() const { return watchdog_->limit(); }

void World::enter_step(int64_t step) {
  if (watchdog_) watchdog_->enter_step(step);
}

void World::end_all_ranks(const std::string& reason) {
  if (watchdog_) watchdog_->leave(Parting::failed);
  if (rank_ != 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::string line = str(program_invocation_short_name, ": [rank ", rank_, "] ", reason, '\n');
  std::fwrite(line.data(), 1, line.size(), stderr);
  if (!over_mpi_) std::_Exit(1);
  keep_abort_quiet();
  MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

}  // namespace flatshard
