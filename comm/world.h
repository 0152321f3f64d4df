#pragma once
// The processes of a run. Under mpirun (or srun) they find each other through MPI; a program started by
// itself is a world of one and does not touch MPI. Host values are exchanged here, tensors through
// Communicators. Both are watched (watchdog.h): a rank that dies or hangs ends all others, each with one
// line.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace flatshard {

class Watchdog;

class World {
 public:
  // Joins the run. This, like every collective, may take up to `longest`. To be constructed once, before
  // threads are started.
  explicit World(std::chrono::seconds longest = std::chrono::seconds(120));
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }  // index among the ranks of this host
  int local_size() const { return local_size_; }
  const std::vector<std::string>& hosts() const { return hosts_; }  // the host name of each rank

  // The values of all ranks, in rank order; every rank passes equally many. `what` is a literal that names
  // them.
  std::vector<double> all_gather(std::span<const double> values, const char* what = "values");
  // The text of every rank, of any length.
  std::vector<std::string> all_gather_texts(const std::string& text, const char* what);
  // Sends texts of every rank to rank 0 in rank order, one at a time, so that rank 0 never holds many. give()
  // is called until it returns ""; rank 0 calls take() with each text before that.
  void collect(const std::function<std::string()>& give,
               const std::function<void(int rank, const std::string& text)>& take);
  // Blocks until all ranks have called it.
  void barrier(const char* what);
  // Returns whether all ranks call this within some time. Ranks that fail call it if they do not know which
  // others fail. No other collective matches it. After false, a rank must end.
  bool all_arrive(std::chrono::seconds within);
  // Prints the reason on one line and ends all ranks with exit code 1. Other ranks wait a moment, so that an
  // error that all of them found is printed by rank 0 alone.
  [[noreturn]] void end_all_ranks(const std::string& reason);

  bool over_mpi() const { return over_mpi_; }

  // limit_collectives() sets how long a collective may take. enter_step() sets the step that an error line
  // names.
  void limit_collectives(std::chrono::seconds longest);
  std::chrono::seconds collective_limit() const;  // requires several ranks
  void enter_step(int64_t step);
  Watchdog* watchdog() { return watchdog_.get(); }  // null in a world of one

 private:
  size_t all_ranks() const { return static_cast<size_t>(size_); }
  std::vector<int> silent_ranks() const;
  struct Host;  // the ranks of this host, and the memory that they share

  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1;
  bool over_mpi_ = false;
  std::vector<std::string> hosts_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<Watchdog> watchdog_;
};

// The number of threads that this rank should compute with: the processors that it is bound to, divided among
// the ranks of its host that are bound to the same ones.
int threads_for(const World& world);

// Texts for errors. `hosts` has the host of every rank. "ranks 2-4 on node7, node8"
std::string name_ranks(const std::vector<int>& ranks, const std::vector<std::string>& hosts);
// "ranks 2-3 on node7 do not answer: cut off, down or stuck"
std::string describe_silent(const std::vector<int>& ranks, const std::vector<std::string>& hosts);

}  // namespace flatshard
