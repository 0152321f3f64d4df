#include "comm/world.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <mpi.h>

#include "comm/launch.h"
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

// MPI counts in int: a text travels behind its length, in parts.
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

}  // namespace

World::World() {
  if (!launched_ranks()) return;
  int provided = MPI_THREAD_SINGLE;  // each communication stream talks from its own thread
  mpi_check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init_thread");
  check(provided == MPI_THREAD_MULTIPLE, "this MPI library cannot be used by several threads at once");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &size_);
  MPI_Comm host;
  mpi_check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host),
            "MPI_Comm_split_type");
  MPI_Comm_rank(host, &local_rank_);
  MPI_Comm_size(host, &local_size_);
  MPI_Comm_free(&host);
  over_mpi_ = true;
}

World::~World() {
  if (over_mpi_) MPI_Finalize();
}

std::vector<double> World::all_gather(std::span<const double> values) {
  if (!over_mpi_) return {values.begin(), values.end()};
  const int count = static_cast<int>(values.size());
  std::vector<double> all(values.size() * static_cast<size_t>(size_));
  mpi_check(MPI_Allgather(values.data(), count, MPI_DOUBLE, all.data(), count, MPI_DOUBLE, MPI_COMM_WORLD),
            "MPI_Allgather");
  return all;
}

void World::collect(const std::function<std::string()>& give,
                    const std::function<void(int rank, const std::string& text)>& take) {
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

void World::barrier() {
  if (over_mpi_) mpi_check(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier");
}

void World::end_all_ranks(const std::string& reason) {
  if (rank_ != 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  const std::string line = str(program_invocation_short_name, ": [rank ", rank_, "] ", reason, '\n');
  std::fwrite(line.data(), 1, line.size(), stderr);
  if (over_mpi_) MPI_Abort(MPI_COMM_WORLD, 1);
  std::_Exit(1);
}

}  // namespace flatshard
