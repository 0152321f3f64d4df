#pragma once
// Ends a rank that would otherwise wait forever. A thread of this process watches its collectives, each of
// which has a time limit, and the other ranks of this host, whose end wakes it at once. It reports what it
// finds on one line and ends this process, because a job that lost a rank cannot continue.
// Time in which this process was suspended (Ctrl-Z, SIGSTOP, a frozen container) does not count: a job that
// is suspended and resumed as a whole continues.
//
// A rank that exits normally first announces it in memory shared by the ranks of the host, so that no failure
// is reported.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/collective.h"
#include "comm/process_ends.h"

namespace flatshard {

// The exit code of a rank that lost others: they ended unexpectedly, or do not answer. Of sysexits.h.
inline constexpr int kLostRanks = 69;

// The way a rank exits: normally; after reporting an error and aborting the job; through its watchdog.
enum class Parting : int { not_yet, finished, failed, gave_up };

class Watchdog {
 public:
  struct Peer {
    int rank;
    pid_t pid;
    const std::atomic<Parting>* parting;
  };
  // `parting` is the memory in which this rank announces its exit. When a collective has timed out, a thread
  // calls `silent`, which returns the ranks that do not answer, as text for the error.
  Watchdog(int rank, std::vector<Peer> peers, std::atomic<Parting>& parting,
           std::function<std::string()> silent);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  void limit(std::chrono::seconds longest) { limit_ = longest; }
  std::chrono::seconds limit() const { return limit_; }
  void enter_step(int64_t step) { step_ = step; }
  void leave(Parting how) { parting_ = how; }

  using Clock = std::chrono::steady_clock;

  // Before the watchdog ends this process, it calls `note` with the reason in another thread and waits a
  // moment for it.
  void on_giving_up(std::function<void(const std::string& reason)> note);

  // The watchdog's thread calls `ask` regularly while the probe exists; it returns why the run cannot
  // continue, or "". Its arguments are the time limit of a collective and how long this process has been
  // suspended since the last call. It serves back ends whose calls return before they complete.
  class Probe {
   public:
    using Ask = std::function<std::string(std::chrono::seconds limit, Clock::duration suspended)>;
    Probe(Watchdog* watchdog, Ask ask);  // never called without a watchdog
    ~Probe();
    Probe(const Probe&) = delete;
    Probe& operator=(const Probe&) = delete;

   private:
    friend class Watchdog;
    Watchdog* watchdog_;
    Ask ask_;
  };

 private:
  friend class InFlight;
  struct Flight {
    uint64_t number;
    Collective call;
    Clock::time_point since;
  };

  void watch();
  void look_at_peers(const std::vector<size_t>& ended);
  void look_at_flights(Clock::duration suspended);
  void look_at_probes(Clock::duration suspended);
  std::vector<Flight> flights();
  std::string where() const;
  std::string doing();
  std::string silent() const;
  void note(const std::string& reason);
  [[noreturn]] void give_up(const std::string& reason);

  int rank_;
  std::vector<Peer> peers_;
  std::atomic<Parting>& parting_;
  std::function<std::string()> silent_;
  ProcessEnds ends_;
  std::atomic<std::chrono::seconds> limit_{std::chrono::seconds(120)};
  std::atomic<int64_t> step_{0};
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;
  std::vector<Flight> flights_;  // one for each thread that is in a collective
  uint64_t next_flight_ = 0;
  std::mutex note_mutex_;
  std::function<void(const std::string& reason)> note_;
  std::mutex probes_mutex_;
  std::vector<Probe*> probes_;
  std::thread thread_;
};

// Lives while a thread carries out a collective, and tells the watchdog. Without a watchdog it does nothing.
class InFlight {
 public:
  InFlight(Watchdog* watchdog, const Collective& call);
  ~InFlight();
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

 private:
  Watchdog* watchdog_;
  uint64_t number_ = 0;
};

}  // namespace flatshard
