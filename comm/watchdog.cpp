#include "comm/watchdog.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iomanip>
#include <sstream>

#include "runtime/check.h"

namespace flatshard {
namespace {

constexpr std::chrono::milliseconds kBetweenLooks{500};
// A later look means that the process was suspended; a busy machine does not delay a look so much.
constexpr std::chrono::milliseconds kLatestLook{1000};
// The time that the launcher has to pass on the last line: it may end as soon as it finds all ranks dead.
constexpr std::chrono::milliseconds kUntilForwarded{200};
constexpr std::chrono::seconds kUntilAnswered{3};
constexpr std::chrono::milliseconds kBetweenAnswers{20};

std::vector<pid_t> pids_of(const std::vector<Watchdog::Peer>& peers) {
  std::vector<pid_t> pids;
  for (const Watchdog::Peer& peer : peers) pids.push_back(peer.pid);
  return pids;
}

template <class Duration>
std::string in_seconds(Duration duration) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << std::chrono::duration<double>(duration).count() << " s";
  return std::move(out).str();
}

}  // namespace

Watchdog::Watchdog(int rank, std::vector<Peer> peers, std::atomic<Parting>& parting,
                   std::function<std::string()> silent)
    : rank_(rank),
      peers_(std::move(peers)),
      parting_(parting),
      silent_(std::move(silent)),
      ends_(pids_of(peers_)) {
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  stopping_ = true;
  ends_.wake();
  thread_.join();
}

void Watchdog::watch() {
  Clock::time_point last = Clock::now();
  while (!stopping_) {
    look_at_peers(ends_.within(kBetweenLooks));
    const Clock::time_point now = Clock::now();
    const Clock::duration suspended =
        now - last > kLatestLook ? now - last - kBetweenLooks : Clock::duration{};
    last = now;
    look_at_flights(suspended);
    look_at_probes(suspended);
  }
}

void Watchdog::look_at_peers(const std::vector<size_t>& ended) {
  const auto first = [&](Parting how) -> const Peer* {
    for (const size_t i : ended)
      if (*peers_[i].parting == how) return &peers_[i];
    return nullptr;
  };
  if (const Peer* lost = first(Parting::not_yet))
    give_up(str("rank ", lost->rank, " (pid ", lost->pid, ") ended unexpectedly ", where(), "; ", doing()));
  if (const Peer* other = first(Parting::gave_up))
    give_up(str("rank ", other->rank, " (pid ", other->pid, ") gave up ", where(), "; ", doing()));
  if (first(Parting::failed)) std::_Exit(1);  // that rank has printed the reason
}

void Watchdog::look_at_flights(Clock::duration suspended) {
  const std::chrono::seconds limit = limit_;
  if (suspended > Clock::duration{}) {
    const std::lock_guard lock(mutex_);
    for (Flight& flight : flights_) flight.since = std::min(flight.since + suspended, Clock::now());
  }
  for (const Flight& flight : flights()) {
    const auto taken = Clock::now() - flight.since;
    if (taken <= limit) continue;
    give_up(str(describe(flight.call), ", has taken ", in_seconds(taken), ' ', where(),
                ", more than parallel.timeout_seconds = ", limit.count(),
                " (raise it if this may take longer)", silent()));
  }
}

void Watchdog::look_at_probes(Clock::duration suspended) {
  const std::lock_guard lock(probes_mutex_);
  for (const Probe* probe : probes_)
    if (const std::string trouble = probe->ask_(limit_, suspended); !trouble.empty())
      give_up(str(trouble, ' ', where(), silent()));
}

std::vector<Watchdog::Flight> Watchdog::flights() {
  const std::lock_guard lock(mutex_);
  return flights_;
}

std::string Watchdog::where() const {
  const int64_t step = step_;
  return step == 0 ? "before step 1" : str("in step ", step);
}

std::string Watchdog::doing() {
  std::vector<Flight> all = flights();
  if (all.empty()) return "this rank was in no collective";
  const Flight& oldest = *std::min_element(
      all.begin(), all.end(), [](const Flight& a, const Flight& b) { return a.since < b.since; });
  return str("this rank was in ", describe(oldest.call), ", for ", in_seconds(Clock::now() - oldest.since));
}

// Asks in another thread, which may never return. A rank that has given up has already reported the silent
// ranks, and the launcher is about to end this rank, so the answer is then not awaited.
std::string Watchdog::silent() const {
  std::packaged_task<std::string()> ask(silent_);
  std::future<std::string> answer = ask.get_future();
  std::thread(std::move(ask)).detach();
  const auto has_given_up = [](const Peer& peer) { return *peer.parting == Parting::gave_up; };
  const Clock::time_point latest = Clock::now() + kUntilAnswered;
  bool came = false;
  while (!came && Clock::now() < latest && std::none_of(peers_.begin(), peers_.end(), has_given_up))
    came = answer.wait_for(kBetweenAnswers) == std::future_status::ready;
  const std::string who = came ? answer.get() : "";
  return who.empty() ? "" : "; " + who;
}

void Watchdog::on_giving_up(std::function<void(const std::string& reason)> note) {
  const std::lock_guard lock(note_mutex_);
  note_ = std::move(note);
}

// Calls the note in another thread, since a file system may delay it.
void Watchdog::note(const std::string& reason) {
  std::unique_lock lock(note_mutex_);
  if (!note_) return;
  std::packaged_task<void()> task([note = note_, reason] { note(reason); });
  lock.unlock();
  const std::future<void> noted = task.get_future();
  std::thread(std::move(task)).detach();
  noted.wait_for(kUntilAnswered);
}

void Watchdog::give_up(const std::string& reason) {
  // One write, so that the lines of several ranks do not mix.
  const std::string line = str(program_invocation_short_name, ": [rank ", rank_, "] ", reason, '\n');
  std::fwrite(line.data(), 1, line.size(), stderr);
  leave(Parting::gave_up);
  const auto forwarded = Clock::now() + kUntilForwarded;
  note(reason);
  std::this_thread::sleep_until(forwarded);
  std::_Exit(kLostRanks);
}

Watchdog::Probe::Probe(Watchdog* watchdog, Ask ask) : watchdog_(watchdog), ask_(std::move(ask)) {
  if (!watchdog_) return;
  const std::lock_guard lock(watchdog_->probes_mutex_);
  watchdog_->probes_.push_back(this);
}

Watchdog::Probe::~Probe() {
  if (!watchdog_) return;
  const std::lock_guard lock(watchdog_->probes_mutex_);
  std::erase(watchdog_->probes_, this);
}

InFlight::InFlight(Watchdog* watchdog, const Collective& call) : watchdog_(watchdog) {
  if (!watchdog_) return;
  const auto now = Watchdog::Clock::now();
  const std::lock_guard lock(watchdog_->mutex_);
  number_ = watchdog_->next_flight_++;
  watchdog_->flights_.push_back({number_, call, now});
}

InFlight::~InFlight() {
  if (!watchdog_) return;
  const std::lock_guard lock(watchdog_->mutex_);
  std::erase_if(watchdog_->flights_, [&](const auto& flight) { return flight.number == number_; });
}

}  // namespace flatshard
